// Kind CRASH-CONSISTENCY, beside tests/crash: files that are shorter than they should be, or cannot
// be read, and what a failed read may forget.
#include <sys/stat.h>

#include "crash/data_file.hpp"
#include "fault/world.hpp"

namespace terrace::test {
namespace {

class CrashConsistency : public testing::TestWithParam<Geometry> {
 protected:
  const Geometry& geometry() const { return GetParam(); }
  Options options() const { return geometry().options(folder_.path()); }
  Tokens prompt() const { return tokens_from(0, 12 * geometry().block_tokens + 1); }
  std::uint32_t whole() const { return 12 * geometry().block_tokens; }
  std::string data() const { return folder_ / "blocks.dat"; }

  // Each life in a process of its own, because RocksDB's threads do not survive a fork.
  void live(const std::function<void(ToyEngine&)>& body) const {
    EXPECT_EQ(run_in_child([&] {
                ToyEngine engine(options(), geometry().layout());
                body(engine);
                return 0;
              }),
              0);
  }

  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Directories, CrashConsistency, testing::Values(kScan, kPageCache, kIndex),
                         [](const auto& param) { return std::string(param.param.name); });

// O049: under a cache that has it open, and before it is opened.
TEST_P(CrashConsistency, AFileThatIsCutShortIsAMissAndTheRestIsServed) {
  const auto record =
      static_cast<off_t>(internal::RecordFormat(geometry().layout(), 4096).record_bytes());
  for (const off_t bytes : {off_t{0}, off_t{1}, off_t{4095}, record - 1, 5 * record + 4096 + 1}) {
    SCOPED_TRACE(bytes);
    live([&](ToyEngine& engine) {
      engine.serve(prompt());
      engine.drop({kHbm0, kDram0});
      EXPECT_EQ(::truncate(data().c_str(), bytes), 0);
      EXPECT_LT(engine.serve(prompt()).cached_tokens, whole());
      const Stats stats = engine.cache().stats();
      EXPECT_GE(stats.places[kNvme0].io_errors + stats.places[kNvme0].corrupt_blocks, 1U);
      EXPECT_GE(stats.failed_blocks, 1U);
      EXPECT_EQ(engine.serve(prompt()).cached_tokens, whole());
      EXPECT_TRUE(engine.cache().close());
    });
    EXPECT_EQ(::truncate(data().c_str(), bytes), 0);
    live([&](ToyEngine& engine) {
      // Nobody may have read all of it yet: the index still names what was cut off. Once it was asked for,
      // it is written anew.
      for (int i = 0; i < 2; ++i) {
        engine.serve(prompt());
        engine.drop({kHbm0, kDram0});
      }
      EXPECT_EQ(engine.serve(prompt()).cached_by_place[kNvme0], whole());
    });
  }
}

// O049: another user's file.
TEST_P(CrashConsistency, AFileThatMayNotBeReadIsATypedError) {
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  const auto as_nobody = [&](const std::function<void()>& body) {
    return run_in_child([&] {
      if (::getuid() == 0 && ::setuid(65534) != 0) return not_permitted;
      body();
      return 0;
    });
  };
  const int result = as_nobody([&] {
    ToyEngine engine(options(), geometry().layout());
    engine.serve(prompt());
  });
  if (result == not_permitted) GTEST_SKIP() << "the user cannot be changed here";
  EXPECT_EQ(result, 0);
  ASSERT_EQ(::chmod(data().c_str(), 0), 0);
  EXPECT_EQ(as_nobody([&] {
              const auto refused = Cache::open(options(), geometry().layout());
              EXPECT_FALSE(refused);
              EXPECT_EQ(refused.error().code, Code::io_error);
              EXPECT_EQ(refused.error().os_error, EACCES);
            }),
            0);
  ASSERT_EQ(::chmod(data().c_str(), 0600), 0);
  EXPECT_EQ(as_nobody([&] {
              ToyEngine engine(options(), geometry().layout());
              EXPECT_EQ(engine.serve(prompt()).cached_by_place[kNvme0], whole());
            }),
            0);
}

// O051: a read fails, the block is written again elsewhere: the failure must not cost the new copy,
// neither now nor after a restart, clean or not.
TEST_P(CrashConsistency, AFailedReadForgetsTheOldCopyOnly) {
  live([&](ToyEngine& engine) {
    engine.serve(prompt());
    engine.drop({kHbm0, kDram0});
    const DataFile file(geometry(), folder_.path());
    const AlignedBytes record(file.format().record_bytes());
    const std::uint32_t slot = file.slots()[4];
    EXPECT_TRUE(file.read(slot, record.span()));
    record.span()[file.format().header_bytes() + 99] ^= std::byte{4};
    file.write(slot, record.span());
    EXPECT_LT(engine.serve(prompt()).cached_tokens, whole());
    EXPECT_EQ(engine.cache().stats().places[kNvme0].corrupt_blocks, 1U);
    engine.drop({kHbm0, kDram0});
    EXPECT_EQ(engine.serve(prompt()).cached_by_place[kNvme0], whole());
    EXPECT_TRUE(engine.cache().close());
  });
  for (int start = 0; start < 2; ++start) {
    live([&](ToyEngine& engine) {
      EXPECT_EQ(engine.serve(prompt()).cached_by_place[kNvme0], whole());
      EXPECT_EQ(engine.cache().stats().places[kNvme0].corrupt_blocks, 0U);
      ::_exit(testing::Test::HasFailure() ? 1 : 0);  // without close()
    });
  }
}

}  // namespace
}  // namespace terrace::test
