// A good guest in another's process: leaves nothing behind, needs no thread, shares with other
// threads and caches.
#include <dirent.h>

#include <fstream>
#include <thread>

#include "cache/harness.hpp"

namespace terrace::test {
namespace {

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

std::uint64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6));
  }
  return 0;
}

TEST(Guest, OpenAndCloseAHundredTimesLeavesNothing) {
  TemporaryFolder folder;
  const auto once = [&folder] {
    ToyEngine engine(toy_options(16, 256, folder.path()));
    engine.serve(tokens_from(0, 41));
  };
  for (int i = 0; i < 10; ++i) once();
  const std::size_t descriptors = entries("/proc/self/fd");
  const std::size_t threads = entries("/proc/self/task");
  const std::uint64_t memory = resident_kib();
  for (int i = 0; i < 100; ++i) once();
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_LE(entries("/proc/self/task"), threads);  // a worker of the kernel's may have ended
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)                 // they keep freed memory back for a while
  EXPECT_LT(resident_kib(), memory + 16 * 1024);  // 100 arenas of 2 MiB would be 200 MiB
#else
  (void)memory;
#endif
}

TEST(Guest, NoThreadUnlessAskedFor) {
  const std::size_t before = entries("/proc/self/task");
  ToyEngine engine(toy_options(16, 16));
  engine.serve(tokens_from(0, 41));
  EXPECT_EQ(entries("/proc/self/task"), before);
}

// What a record says of its block is read without the lock, while others add blocks of new roots.
TEST(Guest, TenantsComeWhileRecordsAreSealedAndVerified) {
  TemporaryFolder folder;
  Options options = toy_options(64, 64, folder.path());
  options.driver_thread = true;
  ToyEngine engine(options);
  for (std::uint32_t i = 0; i < 3000; ++i) {
    const std::string salt = "tenant " + std::to_string(i);
    engine.prefill(tokens_from(0, 9), {.adapter = {}, .tenant_salt = salt}).release();
    if (i % 16 != 0) continue;
    EXPECT_TRUE(engine.cache().flush(10s));  // or spills hold the whole arena
    if (i % 128 == 0) engine.prefill(tokens_from(0, 201)).release();
  }
  EXPECT_TRUE(engine.cache().flush(10s));
  EXPECT_GT(engine.cache().stats().places[kNvme0].stored_blocks, 1000u);
}

TEST(Guest, TwoCachesInOneProcess) {
  TemporaryFolder folder;
  ToyEngine a(toy_options(16, 16, folder / "a"));
  ToyEngine b(toy_options(16, 16, folder / "b"));
  a.serve(tokens_from(0, 41));
  EXPECT_EQ(b.serve(tokens_from(0, 41)).cached_tokens, 0u);
  EXPECT_EQ(a.serve(tokens_from(0, 41)).cached_tokens, 40u);
}

TEST(Guest, SaysWhatItDoesThroughTheHooks) {
  TemporaryFolder folder;
  Options options = toy_options(16, 16, folder.path());
  std::vector<std::string> lines;
  std::vector<std::string> steps;
  options.log = [&](LogLevel, std::string_view text) { lines.emplace_back(text); };
  options.progress = [&](std::string_view step, std::uint64_t done, std::uint64_t total) {
    EXPECT_LE(done, total);
    steps.emplace_back(step);
  };
  ToyEngine engine(options);
  EXPECT_FALSE(lines.empty());
  EXPECT_FALSE(steps.empty());
}

TEST(Guest, EnginesOnManyThreadsBesideTheDriver) {
  TemporaryFolder folder;
  Options options = toy_options(96, 64, folder.path());
  options.driver_thread = true;
  ToyEngine engine(options);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 3; ++t) {
    threads.emplace_back([&engine, t] {
      for (std::uint32_t i = 0; i < 40; ++i) {
        const Tokens prompt = tokens_from((i + t) % 7 * 1000, 40 + i % 5 * 8);
        ReadLease lease = engine.prefill(prompt);
        (void)engine.cache().stats();
        lease.release();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine.cache().flush(10s));
  engine.check_conservation();
  engine.check_nothing_pinned();
}

}  // namespace
}  // namespace terrace::test
