// A prefix on its way down and back: DRAM, NVMe, restart, damage.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>

#include "cache/harness.hpp"
#include "support/damage.hpp"

namespace terrace::test {
namespace {

TEST(Tiers, EveryPlaceGivesBackTheSameBytes) {
  TemporaryFolder folder;
  ToyEngine engine(toy_options(64, 64, folder.path()));
  const Tokens prompt = tokens_from(0, 201);  // 25 blocks
  EXPECT_EQ(engine.serve(prompt).cached_tokens, 0u);
  EXPECT_EQ(engine.serve(prompt).cached_by_place[kHbm0], 200u);
  engine.drop({kHbm0});
  EXPECT_EQ(engine.serve(prompt).cached_by_place[kDram0], 200u);
  EXPECT_EQ(engine.serve(prompt).cached_by_place[kHbm0], 200u);
  engine.drop({kHbm0, kDram0});
  EXPECT_EQ(engine.serve(prompt).cached_by_place[kNvme0], 200u);
  engine.check_nothing_pinned();
  const Stats stats = engine.cache().stats();
  EXPECT_EQ(stats.places[kNvme0].corrupt_blocks, 0u);
  EXPECT_EQ(stats.spill_backlog_blocks, 0u);
}

TEST(Tiers, ADroppedPlaceIsEmptyAndAllDroppedIsAMiss) {
  TemporaryFolder folder;
  ToyEngine engine(toy_options(64, 64, folder.path()));
  const Tokens prompt = tokens_from(0, 81);
  engine.serve(prompt);
  engine.drop({kHbm0, kDram0, kNvme0});
  const Stats stats = engine.cache().stats();
  for (const PlaceStats& place : stats.places) EXPECT_EQ(place.used_blocks, 0u);
  EXPECT_EQ(engine.serve(prompt).cached_tokens, 0u);
}

TEST(Tiers, RestartIsWarm) {
  TemporaryFolder folder;
  const Tokens prompt = tokens_from(0, 201);
  {
    ToyEngine engine(toy_options(64, 64, folder.path()));
    engine.serve(prompt);
    const auto closed = engine.cache().close();
    EXPECT_TRUE(closed) << closed.error().message;
    EXPECT_EQ(engine.model().match(prompt).error().code, Code::closed);
  }
  ToyEngine engine(toy_options(64, 64, folder.path()));
  EXPECT_EQ(engine.cache().stats().recovered_blocks, 25u);
  EXPECT_EQ(engine.serve(prompt).cached_by_place[kNvme0], 200u);
}

// Large enough for RocksDB to be worth it: recovery comes from the index, not from a scan.
TEST(Tiers, RestartIsWarmThroughTheIndex) {
  TemporaryFolder folder;
  const Layout layout = toy_layout(256);  // 96 KiB a block
  const Options options = toy_options(16, 16, folder.path(), 128 * MiB, layout);
  const Tokens prompt = tokens_from(0, 8 * 256 + 1);
  {
    ToyEngine engine(options, layout);
    if (!engine.cache().stats().nvme_index) GTEST_SKIP() << "built without RocksDB";
    engine.serve(prompt);
    EXPECT_TRUE(engine.cache().close());
  }
  ToyEngine engine(options, layout);
  EXPECT_TRUE(engine.cache().stats().nvme_index);
  EXPECT_EQ(engine.cache().stats().recovered_blocks, 8u);
  EXPECT_EQ(engine.serve(prompt).cached_by_place[kNvme0], 8 * 256u);
}

// After a power cut, torn records lie where no index knows of them, until a start must scan.
TEST(Tiers, I23WhatAnEarlierLifeToreNeverHidesWhatALaterOneWrote) {
  TemporaryFolder folder;
  const Layout layout = toy_layout(256);
  const std::uint64_t record_bytes = 100 * KiB;
  const Options options = toy_options(16, 16, folder.path(), 128 * MiB, layout);
  const std::string index = folder / "index";
  const std::string index_before = folder / "index_before";
  const Tokens prompt = tokens_from(0, 8 * 256 + 1);
  const auto live = [&](const auto& serve) {
    ToyEngine engine(options, layout);
    serve(engine);
    EXPECT_TRUE(engine.cache().close());
    return engine.cache().stats();
  };
  if (!live([](ToyEngine&) {}).nvme_index) GTEST_SKIP() << "built without RocksDB";
  std::filesystem::copy(index, index_before, std::filesystem::copy_options::recursive);
  live([&](ToyEngine& engine) {
    engine.serve(tokens_from(5000, 8 * 256 + 1));
    engine.serve(prompt);
  });
  std::filesystem::remove_all(index);
  std::filesystem::rename(index_before, index);
  for (std::uint64_t slot = 8; slot < 16; ++slot)
    ASSERT_TRUE(flip_byte(folder / "blocks.dat", slot * record_bytes + 50 * KiB));

  const Stats after = live([&](ToyEngine& engine) { engine.serve(prompt); });
  EXPECT_EQ(after.recovered_blocks, 0u) << "the index names none of the torn records";
  std::filesystem::remove_all(index);
  live([&](ToyEngine& engine) {
    EXPECT_EQ(engine.cache().stats().recovered_blocks, 8u);
    EXPECT_EQ(engine.serve(prompt).cached_by_place[kNvme0], 8 * 256u);
  });
}

TEST(Tiers, DropFromNvmeIsForgottenByARestartToo) {
  TemporaryFolder folder;
  const Tokens kept = tokens_from(0, 41);
  {
    ToyEngine engine(toy_options(64, 64, folder.path()));
    engine.serve(tokens_from(700, 41));
    engine.drop({kHbm0, kDram0, kNvme0});
    engine.serve(kept);
    EXPECT_TRUE(engine.cache().close());
  }
  ToyEngine engine(toy_options(64, 64, folder.path()));
  EXPECT_EQ(engine.serve(kept).cached_by_place[kNvme0], 40u);
  const Stats stats = engine.cache().stats();
  if (stats.nvme_index) {
    EXPECT_EQ(stats.recovered_blocks,
              5u);  // without an index, a scan finds the dropped records too
  }
}

TEST(Tiers, AnotherModelFindsNothingInTheSameDirectory) {
  TemporaryFolder folder;
  const Tokens prompt = tokens_from(0, 81);
  {
    ToyEngine engine(toy_options(64, 64, folder.path()));
    engine.serve(prompt);
  }
  {
    ToyEngine other(toy_options(64, 64, folder.path()), toy_layout(),
                    toy_identity("other weights"));
    EXPECT_EQ(other.serve(prompt).cached_tokens, 0u);
  }
  ToyEngine engine(toy_options(64, 64, folder.path()));
  EXPECT_EQ(engine.serve(prompt).cached_tokens, 80u);
}

TEST(Tiers, AnotherLayoutFindsNothing) {
  TemporaryFolder folder;
  const Tokens prompt = tokens_from(0, 81);
  { ToyEngine(toy_options(64, 64, folder.path())).serve(prompt); }
  const Layout other = toy_layout(16);
  ToyEngine engine(toy_options(64, 64, folder.path(), 4 * MiB, other), other);
  EXPECT_EQ(engine.serve(prompt).cached_tokens, 0u);
  EXPECT_EQ(engine.serve(prompt).cached_tokens, 80u);
}

TEST(Tiers, SecondCacheOnOneDirectoryIsTold) {
  TemporaryFolder folder;
  ToyEngine engine(toy_options(64, 64, folder.path()));
  const auto second = Cache::open(toy_options(64, 64, folder.path()), toy_layout());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::busy);
}

TEST(Tiers, HbmTooSmallForTwoRequestsStillHits) {
  TemporaryFolder folder;
  ToyEngine engine(toy_options(6, 64, folder.path()));
  const Tokens a = tokens_from(0, 41);
  const Tokens b = tokens_from(1000, 41);
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(engine.serve(a).cached_tokens, round == 0 ? 0u : 40u);
    EXPECT_EQ(engine.serve(b).cached_tokens, round == 0 ? 0u : 40u);
  }
}

TEST(Tiers, APrefixLongerThanDramStreamsThroughIt) {
  TemporaryFolder folder;
  ToyEngine engine(toy_options(64, 8, folder.path()));
  const Tokens prompt = tokens_from(0, 401);  // 50 blocks through 8 slots
  engine.serve(prompt);
  engine.drop({kHbm0, kDram0});
  EXPECT_EQ(engine.serve(prompt).cached_by_place[kNvme0], 400u);
  engine.check_nothing_pinned();
}

TEST(Tiers, CapsHoldWhateverIsServed) {
  TemporaryFolder folder;
  constexpr std::uint64_t kNvmeBytes = 512 * KiB;
  Options options = toy_options(8, 12, folder.path(), kNvmeBytes);
  ToyEngine engine(options);
  for (std::uint32_t i = 0; i < 60; ++i) {
    engine.serve(tokens_from(i * 100, 49));
    std::uint64_t on_disk = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
      if (entry.is_regular_file()) on_disk += entry.file_size();
    }
    EXPECT_LE(on_disk, kNvmeBytes);
  }
  const Stats stats = engine.cache().stats();
  EXPECT_LE(stats.places[kHbm0].capacity_bytes, options.hbm_bytes);
  EXPECT_LE(stats.places[kDram0].capacity_bytes, options.dram_bytes);
  EXPECT_GT(stats.places[kNvme0].dropped_blocks, 0u);
  EXPECT_EQ(engine.serve(tokens_from(59 * 100, 49)).cached_tokens, 48u);
}

// Every byte of the data file is flipped; nothing wrong may come back, and a later request is right
// and cached again.
TEST(Tiers, DamageOnNvmeIsAMissACounterAndARightAnswer) {
  TemporaryFolder folder;
  const Tokens prompt = tokens_from(0, 81);
  ToyEngine engine(toy_options(64, 64, folder.path()));
  engine.serve(prompt);
  engine.drop({kHbm0, kDram0});
  {
    std::fstream file(folder / "blocks.dat", std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    for (std::size_t at = 4096 + 100; at < bytes.size(); at += 4096)
      bytes[at] = static_cast<char>(~bytes[at]);
    file.seekp(0);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  EXPECT_EQ(engine.serve(prompt).cached_tokens, 0u);
  const Stats stats = engine.cache().stats();
  EXPECT_GE(stats.places[kNvme0].corrupt_blocks, 1u);
  EXPECT_GE(stats.places[kNvme0].quarantined_blocks, 1u);
  EXPECT_GE(stats.failed_blocks, 1u);
  engine.check_nothing_pinned();
  EXPECT_EQ(engine.serve(prompt).cached_tokens, 80u);
  engine.drop({kHbm0, kDram0});
  EXPECT_EQ(engine.serve(prompt).cached_by_place[kNvme0], 80u);
}

TEST(Tiers, GoodPrefixBeforeADamagedBlockIsUsed) {
  TemporaryFolder folder;
  const Tokens prompt = tokens_from(0, 81);
  const std::uint64_t record = 4096 + (toy_layout().block_bytes() + 4095) / 4096 * 4096;
  std::vector<std::uint32_t> usable;
  for (std::uint32_t slot = 0; slot < 10; ++slot) {
    TemporaryFolder own;
    ToyEngine engine(toy_options(64, 64, own.path()));
    engine.serve(prompt);
    engine.drop({kHbm0, kDram0});
    ASSERT_TRUE(flip_byte(own / "blocks.dat", slot * record + 4096 + 13));
    usable.push_back(engine.serve(prompt).cached_tokens);
    EXPECT_EQ(engine.cache().stats().places[kNvme0].corrupt_blocks, 1u);
  }
  // One block of ten is damaged each time: each prefix length from 0 to 72 tokens comes once.
  std::sort(usable.begin(), usable.end());
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(usable[i], i * 8);
}

TEST(Tiers, EventsTellTheWholeLife) {
  TemporaryFolder folder;
  ToyEngine engine(toy_options(64, 64, folder.path()));
  engine.serve(tokens_from(0, 9));
  std::vector<Event> events(100);
  events.resize(engine.cache().read_events(0, events));
  ASSERT_EQ(events.size(), 6u);
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].sequence, i);
    EXPECT_EQ(events[i].incarnation, events[0].incarnation);
  }
  EXPECT_EQ(events[5].place, kNvme0);
  EXPECT_EQ(events[5].to, BlockState::resident);
}

// A clock that is never the same twice.
class RunningClock final : public Clock {
 public:
  Time now() const noexcept override { return Time(++now_); }

 private:
  mutable std::atomic<std::int64_t> now_{0};
};

TEST(Tiers, EventsOfOneCallHaveOneTimeAndTimeGoesOn) {
  Options options = toy_options(64, 0);
  options.clock = std::make_shared<RunningClock>();
  ToyEngine engine(options);
  engine.serve(tokens_from(0, 33));
  engine.serve(tokens_from(100, 33));
  std::vector<Event> events(100);
  events.resize(engine.cache().read_events(0, events));
  std::map<std::int64_t, std::uint32_t> became_resident;  // by time
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_TRUE(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
    if (events[i].to == BlockState::resident) ++became_resident[events[i].time_ns];
  }
  ASSERT_EQ(became_resident.size(), 2u) << "a prompt's four blocks are committed by one call";
  for (const auto& [time_ns, blocks] : became_resident) EXPECT_EQ(blocks, 4u);
}

}  // namespace
}  // namespace terrace::test
