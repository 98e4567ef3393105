// The directory of the NVMe tier: one owner (I23), a hard cap (I16), and clear words when it cannot
// be used.
#include "tier/nvme_store.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "index/store_fixture.hpp"

namespace terrace::internal {
namespace {

using test::disk_usage;
using test::make_chain;
using test::make_record;

#if defined(TERRACE_WITH_ROCKSDB)
constexpr bool kHasRocks = true;
#else
constexpr bool kHasRocks = false;
#endif

class NvmeStoreTest : public test::StoreTest {
 protected:
  void expect_refused(std::uint64_t bytes_max, Code code, const char* words) {
    const auto store = try_open(bytes_max);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, code) << store.error().message;
    EXPECT_NE(std::string(store.error().message).find(words), std::string::npos)
        << store.error().message;
  }
  std::string cache() const { return directory_ / "cache"; }
};

// ---- Ownership ----------------------------------------------------------------------------------

TEST_F(NvmeStoreTest, I23ASecondCacheOfThisProcessIsRefused) {
  auto first = open(MiB);
  expect_refused(MiB, Code::busy, "in use");
  EXPECT_NE(log_.find("process " + std::to_string(::getpid())), std::string::npos) << log_;
  write(*first, 0, make_chain(layout_, 1).blocks[0]);  // and it did no harm
  first.reset();
  EXPECT_NE(open(MiB), nullptr);
}

TEST_F(NvmeStoreTest, I23AnotherProcessIsRefusedUntilTheOwnerIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    auto store = open(MiB);
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  expect_refused(MiB, Code::busy, "in use");
  EXPECT_NE(log_.find("process " + std::to_string(owner)), std::string::npos) << log_;
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  EXPECT_NE(open(MiB), nullptr);
  ::close(ready[0]);
  ::close(ready[1]);
}

// O062: a program that the host starts must not keep the directory locked after the host's end.
TEST_F(NvmeStoreTest, I23FilesAreNotInherited) {
  auto store = open(MiB);
  int ours = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (error || target.string().find(cache()) != 0) continue;
    ++ours;
    EXPECT_NE(::fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, 0) << target;
  }
  EXPECT_GE(ours, 2);  // lock and data file at least
}

TEST_F(NvmeStoreTest, FilesAreForTheOwnerOnly) {
  auto store = open(MiB);
  for (const char* name : {"", "/blocks.dat", "/terrace.lock", "/terrace.manifest"}) {
    struct stat status {};
    ASSERT_EQ(::stat((cache() + name).c_str(), &status), 0) << name;
    EXPECT_EQ(status.st_mode & 077, 0U) << name;
  }
}

TEST_F(NvmeStoreTest, SomebodyElsesFilesAreNeitherUsedNorRemoved) {
  std::filesystem::create_directory(cache());
  std::ofstream(cache() + "/blocks.dat") << "precious";
  expect_refused(MiB, Code::invalid_argument, "no cache made");
  EXPECT_EQ(std::filesystem::file_size(cache() + "/blocks.dat"), 8U);
}

TEST_F(NvmeStoreTest, OtherFilesInItStay) {
  (void)open(MiB);
  std::ofstream(cache() + "/notes.txt") << "mine";
  std::ofstream(cache() + "/terrace.manifest.tmp") << "left by a crash";
  use(test::swapped(layout_));  // so that it is emptied
  (void)open(MiB);
  EXPECT_TRUE(std::filesystem::exists(cache() + "/notes.txt"));
  EXPECT_FALSE(std::filesystem::exists(cache() + "/terrace.manifest.tmp"));
}

// ---- Errors -------------------------------------------------------------------------------------

TEST_F(NvmeStoreTest, ATinyCapIsRefusedBeforeAnythingIsMade) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, 64 * KiB, 100 * KiB}) {
    expect_refused(bytes, Code::invalid_argument, "8 blocks");
  }
  EXPECT_FALSE(std::filesystem::exists(cache()));
}

TEST_F(NvmeStoreTest, TheSmallestCapHoldsEightBlocks) {
  const std::uint64_t smallest = 64 * KiB + 8 * (format_.record_bytes() + 32);
  expect_refused(smallest - 1, Code::invalid_argument, "8 blocks");
  EXPECT_EQ(open(smallest)->slot_count(), 8U);
  EXPECT_LE(disk_usage(cache()), smallest);
}

TEST_F(NvmeStoreTest, AMissingParentIsNamed) {
  std::filesystem::remove_all(directory_.path());
  expect_refused(MiB, Code::io_error, "parent of the NVMe directory does not exist");
}

TEST_F(NvmeStoreTest, AFileIsNotADirectory) {
  std::ofstream(cache()) << "x";
  expect_refused(MiB, Code::invalid_argument, "not a directory");
}

TEST_F(NvmeStoreTest, AnUnwritableDirectoryIsNamed) {
  std::filesystem::create_directory(cache());
  // Root may write where the mode forbids it: a directory in the place of the lock stops everybody.
  std::filesystem::create_directory(cache() + "/terrace.lock");
  expect_refused(MiB, Code::io_error, "cannot be written");
  if (::getuid() == 0) return;
  std::filesystem::remove(cache() + "/terrace.lock");
  ::chmod(cache().c_str(), 0500);
  expect_refused(MiB, Code::io_error, "cannot be written");
  ::chmod(cache().c_str(), 0700);
}

TEST_F(NvmeStoreTest, AReadOnlyFileSystemIsNamed) {
  NvmeStoreOptions options;
  options.path = "/proc/terrace-cache";  // no process can create anything there, root included
  options.bytes_max = MiB;
  const auto store = NvmeStore::open(options, layout_, format_);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::io_error);
  EXPECT_NE(store.error().os_error, 0);
}

TEST_F(NvmeStoreTest, AFailedOpenReleasesTheLock) {
  { auto made = open(MiB); }
  std::filesystem::remove(cache() + "/blocks.dat");
  std::filesystem::create_directories(cache() + "/blocks.dat/in-the-way");
  const auto refused = try_open(MiB);
  ASSERT_FALSE(refused);
  std::filesystem::remove_all(cache() + "/blocks.dat");
  EXPECT_NE(open(MiB), nullptr);
}

// ---- The cap ------------------------------------------------------------------------------------

TEST_F(NvmeStoreTest, SizingGrowsWithTheCapAndNeverExceedsIt) {
  use(test::middle_layout());
  std::uint32_t before = 0;
  for (std::uint64_t bytes = MiB; bytes <= 1024 * GiB; bytes += bytes / 3) {
    const NvmeSizing sizing = size_nvme(bytes, format_);
    std::uint64_t used = sizing.slot_count * format_.record_bytes();
#if defined(TERRACE_WITH_ROCKSDB)
    if (sizing.with_index) {
      used += rocks_slot_index_bytes_max(sizing.slot_count, format_.entry_bytes());
    }
#else
    EXPECT_FALSE(sizing.with_index);
#endif
    EXPECT_LT(used, bytes);
    EXPECT_GT(used, bytes / 10 * 7) << "the cap is hardly used: " << format_bytes(bytes);
    EXPECT_GE(sizing.slot_count * 9 / 8 + 1, before);  // an index takes its eighth once
    before = sizing.slot_count;
  }
  EXPECT_FALSE(size_nvme(32 * MiB, format_).with_index);
  EXPECT_EQ(size_nvme(10 * GiB, format_).with_index, kHasRocks);
}

class CapTest : public NvmeStoreTest, public testing::WithParamInterface<std::uint64_t> {};

TEST_P(CapTest, I16DiskUsageNeverExceedsTheCap) {
  const std::uint64_t cap = GetParam();
  if (cap > 64 * MiB) use(test::middle_layout());
  EXPECT_EQ(size_nvme(cap, format_).with_index, kHasRocks && cap > 64 * MiB);
  std::filesystem::create_directory(cache());
  test::UsageSampler sampler(cache());
  {
    auto store = open(cap);
    const auto chain = make_chain(layout_, std::min(store->slot_count(), 400U));
    fill(*store, chain);
    std::mt19937 random(3);
    for (int i = 0; i < 200; ++i) {
      write(*store, random() % store->slot_count(), chain.blocks[random() % chain.blocks.size()]);
    }
    // The index alone is what can grow: every slot over and over, in random order.
    const test::AlignedBytes record = make_record(format_, chain.blocks[0]);
    const auto header = record.span().first(format_.entry_bytes());
    for (int i = 0; i < 30'000; ++i) {
      while (!store->index().put(random() % store->slot_count(), header)) std::this_thread::yield();
    }
    EXPECT_EQ(store->index().failures(), 0U);
    EXPECT_TRUE(store->close());
  }
  (void)recover(*open(cap));
  const std::uint64_t peak = sampler.stop();
  EXPECT_LE(peak, cap) << format_bytes(peak);
  EXPECT_GT(peak, cap / 2);
}

INSTANTIATE_TEST_SUITE_P(Caps, CapTest, testing::Values(256 * KiB, 5 * MiB + 1, 160 * MiB));

TEST_F(NvmeStoreTest, I16AShrunkCapHoldsAtOnce) {
  use(test::middle_layout());
  { auto large = open(160 * MiB); }
  EXPECT_GT(disk_usage(cache()), 100 * MiB);
  for (const std::uint64_t cap : {70 * MiB, 10 * MiB, 1 * MiB}) {
    auto store = open(cap);
    EXPECT_LE(disk_usage(cache()), cap);
  }
}

// ---- Other file systems
// ---------------------------------------------------------------------------

TEST_F(NvmeStoreTest, I24AFileSystemInMemoryWorksWithoutDirectIo) {
  constexpr long kTmpfsMagic = 0x01021994;
  struct statfs facts {};
  if (::statfs("/dev/shm", &facts) != 0 || facts.f_type != kTmpfsMagic) {
    GTEST_SKIP() << "/dev/shm is not a tmpfs here";
  }
  std::string path = "/dev/shm/terrace-test-XXXXXX";
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  NvmeStoreOptions options;
  options.path = path;
  options.bytes_max = MiB;
  const auto chain = make_chain(layout_, 20);
  {
    auto store = NvmeStore::open(options, layout_, format_);
    ASSERT_TRUE(store) << store.error().message;
    fill(**store, chain);
    EXPECT_TRUE((*store)->close());
  }
  {
    auto store = NvmeStore::open(options, layout_, format_);
    ASSERT_TRUE(store);
    expect_recovers(**store, chain, 20);
  }
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace terrace::internal
