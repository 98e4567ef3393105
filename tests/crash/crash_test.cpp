// I21, I22, I23, I16: a process that fills a cache is killed with SIGKILL, at the n-th of each kind
// of its durable steps and at moments of chance, again and again on one directory. After each kill
// the directory is opened, and every byte in it compared.
//
// A round is one directory and the kills on it; it follows from the seed and its number.
//   TERRACE_CRASH_SEED    another seed
//   TERRACE_CRASH_ROUNDS  so many rounds a test, instead of those of a quick run
//   TERRACE_CRASH_ROUND   this round alone
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "crash/ground.hpp"

namespace terrace::test {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::stoull(text) : otherwise;
}

std::string name_of(const testing::TestParamInfo<Geometry>& info) {
  return info.param.name;
}

// ---- What all tests together have done, printed when they are through ---------------------------

enum class Recovery { by_scan, by_index };

struct Tally {
  std::array<std::array<std::uint32_t, 2>, kCalls> kills_at{};  // by kind and edge
  std::uint32_t kills_by_chance = 0;
  std::uint32_t ended_before = 0;
  std::uint32_t second_openers_refused = 0;
  std::array<Findings, 2> found;  // by recovery

  std::uint32_t kills() const {
    std::uint32_t count = kills_by_chance;
    for (const auto& [entry, exit] : kills_at) count += entry + exit;
    return count;
  }
};
Tally tally;

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 100 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string describe(const char* recovery, const Findings& found) {
  char text[160];
  std::snprintf(
      text, sizeof text, "%s %.3f %% of %llu resident blocks, %.3f %% of %llu flushed", recovery,
      percent(found.warm, found.resident), static_cast<unsigned long long>(found.resident),
      percent(found.flushed_warm, found.flushed), static_cast<unsigned long long>(found.flushed));
  return text;
}

class Report : public testing::Environment {
 public:
  void TearDown() override {
    if (tally.kills() == 0) return;
    std::string points;
    for (std::size_t kind = 0; kind < kCalls; ++kind) {
      const auto [entry, exit] = tally.kills_at[kind];
      points += std::string(to_string(static_cast<Call>(kind))) + " " + std::to_string(entry) +
                "+" + std::to_string(exit) + ", ";
    }
    const auto& [scan, index] = tally.found;
    std::printf(
        "%u kills (before+after: %sat any moment %u; %u lives ended sooner); warm after it: %s; "
        "%s; %llu torn or stale records refused; %u second openers refused\n",
        tally.kills(), points.c_str(), tally.kills_by_chance, tally.ended_before,
        describe("by scan", scan).c_str(), describe("by index", index).c_str(),
        static_cast<unsigned long long>(scan.corrupt + index.corrupt),
        tally.second_openers_refused);
  }
};
[[maybe_unused]] const auto* const report = testing::AddGlobalTestEnvironment(new Report);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSlowness = 4;
#else
constexpr std::uint64_t kSlowness = 1;
#endif

// ---- Rounds -------------------------------------------------------------------------------------

class CrashTest : public testing::TestWithParam<Geometry> {
 protected:
  const Geometry& geometry() const { return GetParam(); }

  void for_each_round(std::uint64_t quick, const std::function<void(std::uint64_t round)>& body) {
    const std::uint64_t count = number_of("TERRACE_CRASH_ROUNDS", quick / kSlowness);
    const std::uint64_t only = number_of("TERRACE_CRASH_ROUND", count);
    std::printf("%llu rounds of seed %llu\n", static_cast<unsigned long long>(count),
                static_cast<unsigned long long>(seed_));
    for (std::uint64_t round = 0; round < std::max(count, only + 1); ++round) {
      if (only != count && round != only) continue;
      SCOPED_TRACE("round " + std::to_string(round) + " of seed " + std::to_string(seed_));
      random_.seed(seed_ * 1'000'003 + round);
      body(round);
      if (HasFailure()) return;
    }
  }

  void examine(Ground& ground, Recovery recovery) {
    if (recovery == Recovery::by_scan) ground.forget_index();
    // Half of them end as a crash does, so that the next life finds what recovery left behind.
    ground.examine(pick(2) == 0);
    for (auto* found : {&found_, &tally.found})
      (*found)[static_cast<std::size_t>(recovery)].add(ground.findings());
  }

  Recovery any_recovery() {
    return geometry().indexed && pick(2) == 0 ? Recovery::by_index : Recovery::by_scan;
  }

  // I21. A single round may be about too few blocks for a share.
  void expect_warm(Recovery recovery) const {
    if (!Examination::keys_tell_blocks_apart()) return;
    const Findings& found = found_[static_cast<std::size_t>(recovery)];
    EXPECT_GT(found.resident, 0U) << "nothing was ever resident: there is nothing to lose";
    EXPECT_GE(found.warm * 100, found.resident * 99) << "too little is warm";
    EXPECT_GE(found.flushed_warm * 100, found.flushed * 99) << "too little of what was flushed";
  }

  std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  const std::uint64_t seed_ = number_of("TERRACE_CRASH_SEED", 1);
  std::mt19937_64 random_;
  std::array<Findings, 2> found_;
};

// ---- At calls -----------------------------------------------------------------------------------

class CrashAtCalls : public CrashTest {
 protected:
  void SetUp() override {
    if (!Ground::may_trace()) GTEST_SKIP() << "this process may not trace its children";
    Ground probe(geometry());
    prepare(probe);
    counts_ = probe.lead_life(seed_);
    for (const Call call : {Call::sync, Call::rename, Call::allocate, Call::create})
      EXPECT_GT(count_of(call), 0U) << "the tracer sees no " << to_string(call);
    EXPECT_GT(count_of(Call::write) + count_of(Call::uring), 20U) << "it misses the records";
  }

  // What there is before a life that is killed.
  virtual void prepare(Ground&) {}

  std::uint32_t count_of(Call call) const { return counts_[static_cast<std::size_t>(call)]; }

  // Every call of the rare kinds, on both sides; of the frequent ones some, on one of them. As many
  // of each kind whatever the timing of a life, so that a round keeps its point.
  std::vector<CallPoint> plan() const {
    constexpr std::uint32_t kSamples = 10;
    std::vector<CallPoint> points;
    for (std::size_t kind = 0; kind < kCalls; ++kind) {
      const bool rare = counts_[kind] < kSamples;
      const std::uint32_t samples = rare ? counts_[kind] : kSamples;
      for (std::uint32_t i = 0; i < samples; ++i) {
        const std::uint32_t nth = 1 + i * counts_[kind] / samples;
        if (rare || i % 2 == 0) points.push_back({static_cast<Call>(kind), nth, Edge::entry});
        if (rare || i % 2 == 1) points.push_back({static_cast<Call>(kind), nth, Edge::exit});
      }
    }
    std::mt19937_64 random(seed_);
    std::ranges::shuffle(points, random);
    return points;
  }

  CallPoint any_point() {
    CallPoint point;
    do {
      point.call = static_cast<Call>(pick(kCalls));
    } while (count_of(point.call) == 0);
    point.nth = 1 + pick(count_of(point.call));
    point.edge = static_cast<Edge>(pick(2));
    return point;
  }

  void crash(Ground& ground, const CallPoint& point) {
    SCOPED_TRACE(std::string(point.edge == Edge::entry ? "before " : "after ") +
                 to_string(point.call) + " no. " + std::to_string(point.nth));
    if (ground.kill_at(point, random_())) {
      ++tally.kills_at[static_cast<std::size_t>(point.call)][static_cast<std::size_t>(point.edge)];
    } else {
      ++tally.ended_before;
    }
    examine(ground, any_recovery());
  }

  Tracer::Counts counts_{};
};

TEST_P(CrashAtCalls, I21NoWrongByteAndNearlyAllIsWarm) {
  const std::vector<CallPoint> points = plan();
  // RocksDB syncs so often that a quick run takes every second one.
  const std::uint64_t quick = geometry().indexed ? points.size() / 2 : points.size();
  for_each_round(quick, [&](std::uint64_t round) {
    Ground ground(geometry());
    // The first finds an empty directory, the next one what that one and the examination left.
    crash(ground, round < points.size() ? points[round] : any_point());
    if (round % 2 == 0) crash(ground, any_point());
    tally.second_openers_refused += ground.second_openers_refused();
  });
  expect_warm(Recovery::by_scan);
}

INSTANTIATE_TEST_SUITE_P(Directories, CrashAtCalls, testing::Values(kScan, kPageCache, kIndex),
                         name_of);

// ---- While a directory grows --------------------------------------------------------------------

// A cap that was raised: manifest and data file are replaced, under records that must stay.
class CrashWhileGrowing : public CrashAtCalls {
 protected:
  void prepare(Ground& ground) override {
    ground.kill_after([](Life& life) { life.load(30), life.flush(), life.wait(); }, seed_);
    Geometry grown = geometry();
    grown.nvme_bytes += grown.nvme_bytes / 4;
    ground.use(grown);
  }
};

TEST_P(CrashWhileGrowing, I21NoWrongByteAndNearlyAllIsWarm) {
  std::vector<CallPoint> points = plan();
  std::erase_if(points, [](const CallPoint& point) {
    return point.call == Call::write || point.call == Call::uring;
  });
  for_each_round(16, [&](std::uint64_t round) {
    Ground ground(geometry());
    prepare(ground);
    crash(ground, points[round % points.size()]);
  });
  expect_warm(Recovery::by_scan);
}

INSTANTIATE_TEST_SUITE_P(Directories, CrashWhileGrowing, testing::Values(kScan, kIndex), name_of);

// ---- At any moment ------------------------------------------------------------------------------

class CrashAtAnyMoment : public CrashTest {
 protected:
  static constexpr std::uint64_t kRounds = 4;

  void crash_often(const std::function<Recovery()>& recovery) {
    Ground ground(geometry());
    ground.kill_after([](Life& life) { life.load(150), life.flush(), life.wait(); }, random_());
    for (int kill = 0; kill < 6; ++kill) {
      ground.kill_after(std::chrono::microseconds(pick(100'000)), random_());
      ++tally.kills_by_chance;
      examine(ground, recovery());
    }
    tally.second_openers_refused += ground.second_openers_refused();
  }
};

TEST_P(CrashAtAnyMoment, I21NoWrongByteAndNearlyAllIsWarm) {
  for_each_round(kRounds, [&](std::uint64_t) { crash_often([this] { return any_recovery(); }); });
  expect_warm(Recovery::by_scan);
}

INSTANTIATE_TEST_SUITE_P(Directories, CrashAtAnyMoment, testing::Values(kScan, kPageCache, kIndex),
                         name_of);

// ---- Through the index --------------------------------------------------------------------------

class CrashIndexed : public CrashAtAnyMoment {};

// A block is called resident, and flush() returns, when RocksDB has the update in its log, not when
// it is on its way there.
TEST_P(CrashIndexed, I21NearlyAllIsWarmByIndexToo) {
  for_each_round(kRounds, [&](std::uint64_t) { crash_often([] { return Recovery::by_index; }); });
  expect_warm(Recovery::by_index);
}

TEST_P(CrashIndexed, I21WhatFlushHasSpokenOfIsWarm) {
  if (!Ground::may_trace()) GTEST_SKIP() << "this process may not trace its children";
  const auto story = [](Life& life) { life.serve_chains(8), life.flush(), life.wait(); };
  Ground undisturbed(geometry());
  undisturbed.kill_after(story, seed_);
  if (!undisturbed.has_index()) GTEST_SKIP() << "there is no index";
  undisturbed.examine();
  EXPECT_GT(undisturbed.findings().flushed, 0U);
  EXPECT_EQ(undisturbed.findings().flushed_warm, undisturbed.findings().flushed);

  Ground held_up(geometry());
  held_up.kill_with_the_log_held_up(story, seed_);
  held_up.examine();
  EXPECT_EQ(held_up.findings().flushed_warm, held_up.findings().flushed);
}

INSTANTIATE_TEST_SUITE_P(Directories, CrashIndexed, testing::Values(kIndex), name_of);

}  // namespace
}  // namespace terrace::test
