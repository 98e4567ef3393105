// Kind INDEX-DB, beside tests/index: what a database in the process of a cache must survive.
//
// Every cache lives in a child: threads of RocksDB do not survive a fork, and this process forks.
#include <fcntl.h>
#include <signal.h>

#include <algorithm>

#include "crash/life.hpp"
#include "crash/tracer.hpp"
#include "fault/world.hpp"

namespace terrace::test {
namespace {

// The smallest that has an index: 96 KiB a block.
constexpr Geometry kSmallIndex{"Index", 256, 72 * MiB, true, true, true};

Options options_for(const std::string& path) {
  return kSmallIndex.options(path);
}
ToyEngine open(const Options& options) {
  return ToyEngine(options, kSmallIndex.layout());
}

bool has_index() {
  TemporaryFolder folder;
  return run_in_child([&] {
           return open(options_for(folder.path())).cache().stats().nvme_index ? 0 : 1;
         }) == 0;
}

#define REQUIRE_INDEX() \
  if (!has_index()) GTEST_SKIP() << "built without RocksDB"

// Takes what is left of the file system.
void fill_up(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::string bytes(64 * KiB, 'x');
  for (std::size_t piece = bytes.size(); piece > 0;) {
    if (::write(fd, bytes.data(), piece) <= 0) piece /= 2;
  }
  ::close(fd);
}

constexpr std::uint32_t kChains = 24;

// O053, O060: the disk is full while the index works; it is full, and then not, at the next starts.
TEST(IndexDb, AFullFileSystemCostsTheIndexAndNothingElse) {
  REQUIRE_INDEX();
  const SmallFileSystem disk(73 * MiB);
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a file system";
  const Options options = options_for(disk / "cache");
  EXPECT_EQ(run_in_child([&] {
              ToyEngine engine = open(options);
              fill_up(disk / "ballast");
              for (int round = 0; round < 8; ++round) {
                for (std::uint32_t i = 0; i < kChains; ++i) engine.serve(prompt_of(kSmallIndex, i));
                engine.drop({kHbm0, kDram0, kNvme0});
              }
              for (std::uint32_t i = 0; i < kChains; ++i) engine.serve(prompt_of(kSmallIndex, i));
              EXPECT_GT(engine.cache().stats().index_failures, 0U) << "the disk was never full";
              ::_exit(testing::Test::HasFailure() ? 1 : 0);  // without close()
              return 0;
            }),
            0);
  for (const bool full : {true, false}) {
    if (!full) std::filesystem::remove(disk / "ballast");
    EXPECT_EQ(run_in_child([&] {
                ToyEngine engine = open(options);
                EXPECT_EQ(engine.cache().stats().nvme_index, !full);
                for (std::uint32_t i = 0; i < kChains; ++i) {
                  const Tokens prompt = prompt_of(kSmallIndex, i);
                  EXPECT_EQ(engine.serve(prompt).cached_tokens, prompt.size() - 1);
                }
                return 0;
              }),
              0)
        << (full ? "full" : "with room again");
  }
}

// O056: a lock of the old kind would go with the second descriptor.
TEST(IndexDb, AFailedSecondOpenKeepsTheLock) {
  REQUIRE_INDEX();
  TemporaryFolder folder;
  const Options options = options_for(folder.path());
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    ToyEngine engine = open(options);
    const auto second = Cache::open(options, kSmallIndex.layout());
    const char said = !second && second.error().code == Code::busy ? 'b' : 'x';
    (void)!::write(ready[1], &said, 1);
    for (;;) ::pause();
  }
  ASSERT_GT(owner, 0);
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'b');
  EXPECT_EQ(Cache::open(options, kSmallIndex.layout()).error().code, Code::busy);
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  EXPECT_EQ(run_in_child([&] { return Cache::open(options, kSmallIndex.layout()) ? 0 : 1; }), 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

// O057: a host that forks under load, and whose child comes upon the cache on its way out, as it
// does where exit handlers destroy it.
class IndexDbForked : public testing::TestWithParam<bool> {};

// The child has no driver thread to wait for, and must not take the parent's completions out of the
// ring that both have mapped.
TEST_P(IndexDbForked, AChildThatClosesNeitherHangsNorHarmsItsParent) {
  TemporaryFolder folder;
  EXPECT_EQ(run_in_child([&] {
              ::alarm(60);
              Options options = options_for(folder.path());
              options.driver_thread = GetParam();
              ToyEngine engine = open(options);
              for (std::uint32_t i = 0; i < 4; ++i)
                engine.prefill(prompt_of(kSmallIndex, i)).release();
              for (int i = 0; i < 3; ++i) engine.cache().poll();
              const int child = run_in_child([&] {
                ::alarm(10);
                (void)engine.cache().close();
                return 0;
              });
              EXPECT_EQ(child, 0) << "the child hung, or crashed";
              for (std::uint32_t i = 0; i < 4; ++i) {
                const Tokens prompt = prompt_of(kSmallIndex, i);
                engine.drop({kHbm0, kDram0});
                EXPECT_EQ(engine.serve(prompt).cached_by_place[kNvme0], prompt.size() - 1);
              }
              return 0;
            }),
            0);
}

INSTANTIATE_TEST_SUITE_P(Drivers, IndexDbForked, testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "OwnThread" : "Caller");
});

// O058: the process ends with stores in flight, and nobody closes the cache.
class IndexDbExit : public testing::TestWithParam<bool> {
 protected:
  Options options() const {
    Options options = options_for(folder_.path());
    options.driver_thread = GetParam();
    return options;
  }

  static void leave_stores_in_flight(ToyEngine& engine) {
    for (std::uint32_t i = 0; i < 6; ++i) engine.prefill(prompt_of(kSmallIndex, i)).release();
    for (int i = 0; i < 3; ++i) engine.cache().poll();
  }

  // `body` ends with std::exit(). The directory is good afterwards.
  void expect_clean_exit(const std::function<void()>& body) const {
    EXPECT_EQ(run_in_child([&] {
                ::alarm(60);
                body();
                return 1;
              }),
              0);
    EXPECT_EQ(run_in_child([&] {
                ToyEngine engine = open(options());
                engine.serve(prompt_of(kSmallIndex, 0));
                EXPECT_TRUE(engine.cache().close());
                EXPECT_EQ(engine.cache().close().error().code, Code::closed);
                return 0;
              }),
              0);
  }

  TemporaryFolder folder_;
};

TEST_P(IndexDbExit, OfACacheThatIsNeverDestroyedIsClean) {
  expect_clean_exit([&] {
    static ToyEngine* const engine = new ToyEngine(options(), kSmallIndex.layout());
    leave_stores_in_flight(*engine);
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  });
}

TEST_P(IndexDbExit, OfACacheThatExitHandlersDestroyIsClean) {
  expect_clean_exit([&] {
    static ToyEngine engine(options(), kSmallIndex.layout());
    leave_stores_in_flight(engine);
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  });
}

// A pointer that was made before the first database is destroyed after RocksDB's own globals; an
// exit handler has closed the database before.
TEST_P(IndexDbExit, OfACacheInAnOlderGlobalIsClean) {
  expect_clean_exit([&] {
    static std::unique_ptr<ToyEngine> engine;
    engine = std::make_unique<ToyEngine>(options(), kSmallIndex.layout());
    leave_stores_in_flight(*engine);
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Drivers, IndexDbExit, testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "OwnThread" : "Caller");
});

// O047, O059: after close() nothing that was written waits for the kernel to write it: a sync
// follows the last write of the data file, and another one the last write of the index's log.
TEST(IndexDb, CloseSyncsTheRecordsAndThenTheIndex) {
  REQUIRE_INDEX();
  TemporaryFolder folder;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!submit_to_tracer()) ::_exit(not_permitted);
    ToyEngine engine = open(options_for(folder.path()));
    for (std::uint32_t i = 0; i < 4; ++i) engine.serve(prompt_of(kSmallIndex, i));
    const bool closed = engine.cache().close().has_value();
    ::_exit(closed && !testing::Test::HasFailure() ? 0 : 1);
  }
  Tracer tracer(child);
  tracer.run_to_end();
  ASSERT_TRUE(WIFEXITED(tracer.status()));
  if (WEXITSTATUS(tracer.status()) == not_permitted)
    GTEST_SKIP() << "this process may not trace its children";
  EXPECT_EQ(WEXITSTATUS(tracer.status()), 0);
  const auto& history = tracer.history();
  const auto syncs_after_the_last = [&](Call call) {
    const auto last = std::find(history.rbegin(), history.rend(), call);
    return std::count(history.rbegin(), last, Call::sync);
  };
  EXPECT_GE(syncs_after_the_last(Call::uring), 2);
  EXPECT_GE(syncs_after_the_last(Call::write), 1);
}

}  // namespace
}  // namespace terrace::test
