// Kind IO-ENV: a machine, a container or a host process that is not as one hopes. What cannot be
// undone happens in a child; what this machine does not permit is skipped, visibly.
#include <sys/resource.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "fault/world.hpp"

namespace terrace::test {
namespace {

// Whether a prefix survives the way to NVMe and back, with every byte of it checked.
bool comes_back_from_nvme(ToyEngine& engine, const Tokens& prompt) {
  engine.serve(prompt);
  engine.drop({kHbm0, kDram0});
  const std::uint32_t block_tokens = engine.block_tokens();
  const auto expected =
      static_cast<std::uint32_t>((prompt.size() - 1) / block_tokens * block_tokens);
  return engine.serve(prompt).cached_by_place[kNvme0] == expected;
}

// O036: a container whose filter refuses io_uring.
TEST(IoEnv, WithoutIoUringEverythingWorksAndIsSaidOnce) {
  TemporaryFolder folder;
  const int result = run_in_child([&] {
    if (!forbid(SYS_io_uring_setup, EPERM)) return not_permitted;
    int said = 0;
    Options options = toy_options(64, 64, folder.path());
    options.log = [&said](LogLevel level, std::string_view text) {
      said += level == LogLevel::warning && text.find("io_uring") != std::string_view::npos;
    };
    ToyEngine engine(options);
    EXPECT_TRUE(comes_back_from_nvme(engine, tokens_from(0, 201)));
    EXPECT_FALSE(engine.cache().stats().nvme_io_uring);
    EXPECT_EQ(said, 1);
    return 0;
  });
  if (result == not_permitted) GTEST_SKIP() << "this process may not install a seccomp filter";
  EXPECT_EQ(result, 0);
}

// O037, O043: `ulimit -l` of 64 KiB, or of 0, and many caches in one process.
struct LockedMemory {
  const char* name;
  rlim_t bytes;
  std::uint32_t caches;
};
class IoEnvLockedMemory : public testing::TestWithParam<LockedMemory> {};

TEST_P(IoEnvLockedMemory, ManyCachesWorkWithHardlyAny) {
  const SmallFileSystem memory(64 * MiB);  // a hundred caches sync a thousand times
  if (!memory.mounted()) GTEST_SKIP() << "this process may not mount a file system";
  const int result = run_in_child([&] {
    const rlimit limit{GetParam().bytes, GetParam().bytes};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return not_permitted;
    if (::getuid() == 0 && ::setuid(65534) != 0) return not_permitted;
    std::vector<std::unique_ptr<ToyEngine>> engines;
    for (std::uint32_t i = 0; i < GetParam().caches; ++i) {
      const std::string path = memory / std::to_string(i).c_str();
      engines.push_back(std::make_unique<ToyEngine>(toy_options(16, 16, path, 256 * KiB)));
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // for them mlock() does nothing
      EXPECT_FALSE(engines.back()->cache().stats().dram_pinned);
#endif
    }
    for (std::uint32_t i = 0; i < GetParam().caches; ++i)
      EXPECT_TRUE(comes_back_from_nvme(*engines[i], tokens_from(i * 1000, 65)));
    return 0;
  });
  if (result == not_permitted) GTEST_SKIP() << "limits and user cannot be changed here";
  EXPECT_EQ(result, 0);
}

INSTANTIATE_TEST_SUITE_P(Limits, IoEnvLockedMemory,
                         testing::Values(LockedMemory{"None", 0, 4},
                                         LockedMemory{"Kib64", 64 * KiB, 100}),
                         [](const auto& param) { return std::string(param.param.name); });

// O039: blocks whose bytes are no multiple of anything that a device wants.
TEST(IoEnv, OddBlockBytesComeBackExactly) {
  struct Shape {
    std::uint32_t heads;
    std::uint32_t dim;
    std::uint32_t block_tokens;
    KvDtype dtype;
  };
  for (const Shape& shape :
       {Shape{1, 1, 1, KvDtype::fp8_e4m3}, Shape{1, 255, 1, KvDtype::fp8_e4m3},
        Shape{1, 257, 1, KvDtype::fp8_e4m3}, Shape{1, 683, 3, KvDtype::fp8_e5m2},
        Shape{3, 37, 5, KvDtype::f16}, Shape{1, 1025, 2, KvDtype::bf16}}) {
    TemporaryFolder folder;
    const Layout layout = Layout::full(1, shape.heads, shape.dim, shape.dtype, shape.block_tokens);
    SCOPED_TRACE(std::to_string(layout.block_bytes()) + " bytes");
    ToyEngine engine(toy_options(64, 64, folder.path(), MiB, layout), layout);
    EXPECT_TRUE(comes_back_from_nvme(engine, tokens_from(0, 8 * shape.block_tokens + 1)));
  }
}

// O040, O045: the host process forks, and starts programs, while direct reads are in flight.
template <class Disturb>
void read_while(const Disturb& disturb) {
  TemporaryFolder folder;
  ToyEngine engine(toy_options(64, 32, folder.path()));
  const Tokens prompt = tokens_from(0, 401);
  engine.serve(prompt);
  std::atomic<bool> done = false;
  std::atomic<int> disturbed = 0;
  std::thread host([&] {
    while (!done) {
      disturb();
      ++disturbed;
    }
  });
  for (int round = 0; round < 40 || disturbed < 40; ++round) {
    engine.drop({kHbm0, kDram0});
    EXPECT_EQ(engine.serve(prompt).cached_by_place[kNvme0], 400U);
  }
  done = true;
  host.join();
  EXPECT_EQ(engine.cache().stats().places[kNvme0].corrupt_blocks, 0U);
}

TEST(IoEnv, ForksDuringReadsHarmNoByte) {
  read_while([] {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
  });
}

TEST(IoEnv, ProgramsStartedDuringReadsHarmNoByte) {
  read_while([] {
    if (FILE* program = ::popen("true", "r")) ::pclose(program);
  });
}

// O041: memory that is not there is refused at open(), and is no signal later.
TEST(IoEnv, ATierThatDoesNotFitIsATypedError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space that this takes away";
#endif
  EXPECT_EQ(run_in_child([] {
              const rlimit limit{GiB, GiB};
              if (::setrlimit(RLIMIT_AS, &limit) != 0) return not_permitted;
              Options options = toy_options(16, 16);
              options.dram_bytes = 2 * GiB;
              const auto too_large = Cache::open(options, toy_layout());
              EXPECT_FALSE(too_large);
              EXPECT_EQ(too_large.error().code, Code::out_of_memory);
              EXPECT_NE(std::string(too_large.error().message).find("byte cap"), std::string::npos);
              ToyEngine engine(toy_options(16, 16));
              engine.serve(tokens_from(0, 65));
              return 0;
            }),
            0);
}

// O042: every fast path switched off, alone and together with each other.
TEST(IoEnv, EachFastPathHasASlowOne) {
  for (unsigned off = 0; off < 32; ++off) {
    SCOPED_TRACE(off);
    TemporaryFolder folder;
    Options options = toy_options(32, 32, folder.path());
    options.huge_pages = (off & 1) == 0;
    options.pin_dram = (off & 2) == 0;
    options.prefault = (off & 4) == 0;
    options.io_uring = (off & 8) == 0;
    options.direct_io = (off & 16) == 0;
    ToyEngine engine(options);
    EXPECT_TRUE(comes_back_from_nvme(engine, tokens_from(0, 129)));
    const Stats stats = engine.cache().stats();
    EXPECT_LE(stats.dram_huge_pages, options.huge_pages);
    EXPECT_LE(stats.dram_pinned, options.pin_dram);
    EXPECT_LE(stats.nvme_io_uring, options.io_uring);
    EXPECT_LE(stats.nvme_direct, options.direct_io);
  }
}

}  // namespace
}  // namespace terrace::test
