// The host copy engine: the contract under 51 seeds, and what only a device without its own
// processor can show, because nothing runs before progress() does.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "io/child_process.hpp"
#include "io/copy_engine_contract.hpp"
#include "io/fast_copy.hpp"

namespace terrace::test {
namespace {

constexpr std::uint64_t seeds = 51;
constexpr std::size_t queue_ops_max = 65536;  // a stream, as host_copy_engine.hpp says
constexpr std::size_t everything = std::size_t{1} << 40;

std::vector<CopyEngineCase> host_engines() {
  std::vector<CopyEngineCase> cases;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    cases.push_back(
        {"seed" + std::to_string(seed), [seed] { return make_host_copy_engine(seed); }});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Host, CopyEngineContract, testing::ValuesIn(host_engines()), case_name);

Copy copy_of(std::uint32_t& to, const std::uint32_t& from) {
  return {reinterpret_cast<std::byte*>(&to), reinterpret_cast<const std::byte*>(&from), 4};
}

// Two streams write one cell, with a wait between them or without. Returns: which value stays.
std::uint32_t last_writer(std::uint64_t seed, bool ordered) {
  const auto engine = make_host_copy_engine(seed);
  const StreamId a = engine->create_stream().value();
  const StreamId b = engine->create_stream().value();
  const std::uint32_t one = 1;
  const std::uint32_t two = 2;
  std::uint32_t cell = 0;
  const Copy first = copy_of(cell, one);
  const Copy second = copy_of(cell, two);
  EXPECT_TRUE(engine->copy(a, {&first, 1}));
  const StreamPoint point = engine->record(a).value();
  if (ordered) {
    EXPECT_TRUE(engine->wait(b, point));
  }
  EXPECT_TRUE(engine->copy(b, {&second, 1}));
  while (engine->progress(1)) {
  }
  return cell;
}

TEST(HostCopyEngine, SeedsReachBothOrdersOfUnorderedStreams) {
  std::set<std::uint32_t> seen;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) seen.insert(last_writer(seed, false));
  EXPECT_EQ(seen, (std::set<std::uint32_t>{1, 2}));
}

TEST(HostCopyEngine, NoSeedBreaksAWait) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) EXPECT_EQ(last_writer(seed, true), 2u) << seed;
}

TEST(HostCopyEngine, SameSeedSameOrder) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    EXPECT_EQ(last_writer(seed, false), last_writer(seed, false));
  }
}

TEST(HostCopyEngine, NothingRunsBeforeProgress) {
  const auto engine = make_host_copy_engine();
  const StreamId s = engine->create_stream().value();
  const std::uint32_t one = 1;
  std::uint32_t cell = 0;
  const Copy copy = copy_of(cell, one);
  ASSERT_TRUE(engine->copy(s, {&copy, 1}));
  const StreamPoint point = engine->record(s).value();
  EXPECT_EQ(engine->query(point), PointState::pending);
  EXPECT_EQ(cell, 0u);
  EXPECT_TRUE(engine->progress(everything));
  EXPECT_EQ(engine->query(point), PointState::passed);
  EXPECT_EQ(cell, 1u);
  EXPECT_FALSE(engine->progress(everything));
}

TEST(HostCopyEngine, SynchronizeRunsNoMoreThanThePointNeeds) {
  const auto engine = make_host_copy_engine();
  const StreamId needed = engine->create_stream().value();
  const StreamId other = engine->create_stream().value();
  const std::uint32_t one = 1;
  std::uint32_t cell = 0;
  const Copy copy = copy_of(cell, one);
  ASSERT_TRUE(engine->copy(other, {&copy, 1}));
  EXPECT_EQ(engine->synchronize(engine->record(needed).value()), PointState::passed);
  EXPECT_EQ(cell, 0u);
}

TEST(HostCopyEngine, ALargeCopyAdvancesWithinItsBudget) {
  const auto engine = make_host_copy_engine();
  const StreamId s = engine->create_stream().value();
  const std::vector<std::uint8_t> from(8 * MiB, 3);
  std::vector<std::uint8_t> to(8 * MiB);
  const Copy copy{reinterpret_cast<std::byte*>(to.data()),
                  reinterpret_cast<const std::byte*>(from.data()), to.size()};
  ASSERT_TRUE(engine->copy(s, {&copy, 1}));
  const StreamPoint point = engine->record(s).value();
  std::size_t calls = 0;
  while (engine->query(point) == PointState::pending) {
    EXPECT_TRUE(engine->progress(1 * MiB));
    ++calls;
    if (calls < 8) {
      EXPECT_EQ(to[calls * MiB], 0);
    }
  }
  EXPECT_GE(calls, 8u);
  EXPECT_LE(calls, 9u);
  EXPECT_EQ(from, to);
}

TEST(HostCopyEngine, AFullQueueTakesNothing) {
  const auto engine = make_host_copy_engine();
  const StreamId s = engine->create_stream().value();
  std::vector<std::uint32_t> from(queue_ops_max, 1);
  std::vector<std::uint32_t> to(queue_ops_max, 0);
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < queue_ops_max; ++i) copies.push_back(copy_of(to[i], from[i]));
  const std::span<const Copy> all(copies);
  ASSERT_TRUE(engine->copy(s, all.first(queue_ops_max - 1)));
  EXPECT_EQ(engine->copy(s, all.last(2)).error().code, Code::retry_later);
  EXPECT_TRUE(engine->copy(s, {}));
  ASSERT_TRUE(engine->record(s));
  EXPECT_EQ(engine->record(s).error().code, Code::retry_later);
  while (engine->progress(everything)) {
  }
  EXPECT_EQ(to.back(), 0u) << "a refused batch must not run";
  EXPECT_EQ(std::count(to.begin(), to.end(), 1u), queue_ops_max - 1);
  const StreamPoint point = engine->record(s).value();
  EXPECT_EQ(point.ticket, 2u) << "a refused record must not use up a ticket";
  EXPECT_EQ(engine->synchronize(point), PointState::passed);
  copies.push_back(copies.front());
  EXPECT_EQ(engine->copy(s, copies).error().code, Code::invalid_argument);
}

TEST(HostCopyEngine, BadCopiesAreRefusedAsAWhole) {
  const auto engine = make_host_copy_engine();
  const StreamId s = engine->create_stream().value();
  std::array<std::uint32_t, 4> cells{1, 0, 0, 0};
  auto* bytes = reinterpret_cast<std::byte*>(cells.data());
  const Copy good{bytes + 4, bytes, 4};
  for (const Copy bad : {Copy{nullptr, bytes, 4}, Copy{bytes, nullptr, 4},
                         Copy{bytes + 2, bytes, 4}, Copy{bytes, bytes + 3, 4}}) {
    const std::array<Copy, 2> both{good, bad};
    EXPECT_EQ(engine->copy(s, both).error().code, Code::invalid_argument);
  }
  EXPECT_FALSE(engine->progress(everything));
  EXPECT_EQ(cells[1], 0u);
}

TEST(HostCopyEngine, ADestroyedStreamStillRunsDry) {
  const auto engine = make_host_copy_engine();
  const StreamId s = engine->create_stream().value();
  const StreamId waiter = engine->create_stream().value();
  const std::uint32_t one = 1;
  std::uint32_t cell = 0;
  const Copy copy = copy_of(cell, one);
  ASSERT_TRUE(engine->copy(s, {&copy, 1}));
  const StreamPoint point = engine->record(s).value();
  ASSERT_TRUE(engine->wait(waiter, point));
  engine->destroy_stream(s);
  EXPECT_EQ(engine->query(point), PointState::pending);
  EXPECT_EQ(engine->synchronize(engine->record(waiter).value()), PointState::passed);
  EXPECT_EQ(engine->query(point), PointState::passed);
  EXPECT_EQ(cell, 1u);
}

TEST(HostCopyEngine, MemoryThatIsNotThereIsAnError) {
  const auto engine = make_host_copy_engine();
  EXPECT_EQ(engine->allocate(0).error().code, Code::invalid_argument);
  EXPECT_EQ(engine->allocate(std::size_t{1} << 60).error().code, Code::out_of_memory);
  EXPECT_EQ(engine->allocate(~std::size_t{0}).error().code, Code::out_of_memory);
}

std::uint64_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::uint64_t kib = 0;
  while (status >> word && word != "VmLck:") {
  }
  status >> kib;
  return kib * KiB;
}

// Sanitizers replace mlock with a function that does nothing.
bool mlock_does_nothing() {
  alignas(4096) static std::byte page[4096];
  const std::uint64_t before = locked_bytes();
  const bool nothing = ::mlock(page, sizeof(page)) == 0 && locked_bytes() == before;
  ::munlock(page, sizeof(page));
  return nothing;
}

TEST(HostCopyEngine, PinLocksAndUnpinGivesBack) {
  if (mlock_does_nothing()) GTEST_SKIP() << "mlock does nothing under this sanitizer";
  const auto engine = make_host_copy_engine();
  std::byte* memory = engine->allocate(64 * KiB).value();
  const std::uint64_t before = locked_bytes();
  const Result<void> pinned = engine->pin(memory, 64 * KiB);
  if (!pinned) GTEST_SKIP() << "this process may not lock 64 KiB";
  EXPECT_EQ(locked_bytes(), before + 64 * KiB);
  EXPECT_EQ(engine->pin(memory, 64 * KiB).error().code, Code::invalid_argument);
  engine->unpin(memory);
  EXPECT_EQ(locked_bytes(), before);
  EXPECT_TRUE(engine->pin(memory, 64 * KiB));
}

// I24: `ulimit -l 0` is a normal path. In a child, because limits and privileges do not come back.
TEST(HostCopyEngine, PinUnderALimitSaysSoAndTheMemoryStaysUsable) {
  if (mlock_does_nothing()) GTEST_SKIP() << "mlock does nothing under this sanitizer";
  const int result = run_in_child([] {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0) return not_permitted;
    if (::getuid() == 0 && ::setuid(65534) != 0) return not_permitted;
    const auto engine = make_host_copy_engine();
    std::byte* memory = engine->allocate(64 * KiB).value();
    const Result<void> pinned = engine->pin(memory, 64 * KiB);
    if (pinned || pinned.error().code != Code::unsupported) return 1;
    std::memset(memory, 1, 64 * KiB);
    return pinned.error().os_error == EPERM || pinned.error().os_error == ENOMEM ? 0 : 2;
  });
  if (result == not_permitted) GTEST_SKIP() << "limits and user cannot be changed here";
  EXPECT_EQ(result, 0);
}

// ---- Copy kernels: each against memcpy, at every misalignment, with guards around ----

class CopyKernels : public testing::TestWithParam<internal::CopyKernel> {};

bool has(internal::CopyKernel kernel) {
#if defined(__x86_64__)
  if (kernel == internal::CopyKernel::avx512) return __builtin_cpu_supports("avx512f");
  if (kernel == internal::CopyKernel::avx2) return __builtin_cpu_supports("avx2");
#endif
  return kernel == internal::CopyKernel::memcpy;
}

TEST_P(CopyKernels, CopyExactlyTheBytes) {
  if (!has(GetParam())) GTEST_SKIP() << "this processor lacks the instructions";
  std::vector<std::byte> from(8192);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(1 + i % 250);
  for (std::size_t offset = 0; offset < 64; offset += 7) {
    for (const std::size_t bytes : {0ul, 1ul, 127ul, 128ul, 255ul, 256ul, 1000ul, 4096ul, 5003ul}) {
      std::vector<std::byte> to(8192);
      std::vector<std::byte> expected(8192);
      internal::copy_bytes(to.data() + offset, from.data() + 3, bytes, GetParam());
      std::memcpy(expected.data() + offset, from.data() + 3, bytes);
      EXPECT_EQ(to, expected) << offset << ' ' << bytes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CopyKernels,
                         testing::Values(internal::CopyKernel::memcpy, internal::CopyKernel::avx2,
                                         internal::CopyKernel::avx512));

}  // namespace
}  // namespace terrace::test
