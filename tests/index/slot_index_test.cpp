// The slot index: one contract for every implementation, and what RocksDB must survive (kind
// INDEX-DB: kill -9, damage, a full disk, a fork, a second open).
#include "index/slot_index.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "index/sample.hpp"
#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

using test::TempDir;

constexpr std::uint32_t kSlots = 500;
constexpr std::uint32_t kEntryBytes = 400;
using Entries = std::map<std::uint32_t, std::string>;

std::string entry_of(std::uint32_t slot, int generation = 0) {
  std::string text = std::to_string(slot) + ":" + std::to_string(generation);
  text.resize(kEntryBytes, static_cast<char>('a' + generation % 26));
  return text;
}

void put(SlotIndex& index, std::uint32_t slot, int generation = 0) {
  const std::string entry = entry_of(slot, generation);
  while (!index.put(slot, std::as_bytes(std::span(entry)))) std::this_thread::yield();
}

void erase(SlotIndex& index, std::uint32_t slot) {
  while (!index.erase(slot)) std::this_thread::yield();
}

Entries load(SlotIndex& index) {
  Entries entries;
  const auto loaded = index.load([&](std::uint32_t slot, std::span<const std::byte> header) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(header.data()) % 8, 0U);
    entries[slot] = std::string(reinterpret_cast<const char*>(header.data()), header.size());
  });
  EXPECT_TRUE(loaded) << loaded.error().message;
  return entries;
}

// ---- The contract -----------------------------------------------------------------------------

using Factory = std::unique_ptr<SlotIndex> (*)(const std::string& path);

class SlotIndexContract : public testing::TestWithParam<Factory> {
 protected:
  TempDir directory_;
  std::unique_ptr<SlotIndex> index_ = GetParam()(directory_ / "index");
};

TEST_P(SlotIndexContract, StartsUnusableAndEmpty) {
  EXPECT_FALSE(index_->usable());
  EXPECT_TRUE(load(*index_).empty());
  EXPECT_EQ(index_->failures(), 0U);
}

TEST_P(SlotIndexContract, TakesUpdatesAndFlushes) {
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) put(*index_, slot);
  erase(*index_, 3);
  EXPECT_TRUE(index_->flush());
  EXPECT_TRUE(index_->mark_complete());
  EXPECT_EQ(index_->failures(), 0U);
}

TEST_P(SlotIndexContract, WhatIsUsableIsComplete) {
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) put(*index_, slot);
  ASSERT_TRUE(index_->mark_complete());
  if (index_->usable()) {
    EXPECT_EQ(load(*index_).size(), kSlots);
  }
}

INSTANTIATE_TEST_SUITE_P(Null, SlotIndexContract, testing::Values([](const std::string&) {
                           return make_null_slot_index();
                         }));

#if defined(TERRACE_WITH_ROCKSDB)

std::unique_ptr<SlotIndex> open_rocks(const std::string& path) {
  auto index = open_rocks_slot_index(path, kSlots, kEntryBytes);
  return index ? std::move(*index) : nullptr;
}

INSTANTIATE_TEST_SUITE_P(RocksDB, SlotIndexContract, testing::Values(&open_rocks));

// ---- RocksDB ----------------------------------------------------------------------------------

class RocksSlotIndexTest : public testing::Test {
 protected:
  RocksSlotIndexTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  std::unique_ptr<SlotIndex> open() { return open_rocks(path_); }
  void write_some() {
    auto index = open();
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) put(*index, slot);
    ASSERT_TRUE(index->mark_complete());
  }

  TempDir directory_;
  const std::string path_ = directory_ / "index";
};

TEST_F(RocksSlotIndexTest, KeepsTheLastUpdateOfEachSlot) {
  {
    auto index = open();
    for (int generation = 0; generation < 3; ++generation) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) put(*index, slot, generation);
    }
    for (std::uint32_t slot = 0; slot < kSlots; slot += 5) erase(*index, slot);
    put(*index, 10, 9);
    ASSERT_TRUE(index->mark_complete());
  }
  auto index = open();
  EXPECT_TRUE(index->usable());
  Entries expected;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (slot % 5 != 0) expected[slot] = entry_of(slot, 2);
  }
  expected[10] = entry_of(10, 9);
  EXPECT_EQ(load(*index), expected);
}

TEST_F(RocksSlotIndexTest, IsNotUsableUntilMarkedComplete) {
  {
    auto index = open();
    for (std::uint32_t slot = 0; slot < kSlots / 2; ++slot) put(*index, slot);
  }  // as if the process had ended in the middle of a scan
  EXPECT_FALSE(open()->usable());
}

TEST_F(RocksSlotIndexTest, AFullQueueRefusesInsteadOfWaiting) {
  auto index = open();
  bool refused = false;
  for (int i = 0; i < 1'000'000 && !refused; ++i) {
    const std::string entry = entry_of(1, i);
    refused = !index->put(1, std::as_bytes(std::span(entry)));
  }
  EXPECT_TRUE(refused);
  EXPECT_TRUE(index->flush());
  put(*index, 2);
  EXPECT_TRUE(index->flush());
}

TEST_F(RocksSlotIndexTest, I21WhatWasWrittenSurvivesKill9) {
  EXPECT_EXIT(
      {
        write_some();
        auto index = open();
        for (std::uint32_t slot = 0; slot < kSlots; ++slot) put(*index, slot, 1);
        (void)index->flush();
        ::kill(::getpid(), SIGKILL);
      },
      testing::KilledBySignal(SIGKILL), "");
  auto index = open();
  EXPECT_TRUE(index->usable());
  EXPECT_EQ(load(*index).size(), kSlots);
  EXPECT_EQ(load(*index)[7], entry_of(7, 1));
}

TEST_F(RocksSlotIndexTest, I21OpensAfterKill9AtAnyMoment) {
  for (int round = 0; round < 6; ++round) {
    EXPECT_EXIT(
        {
          write_some();
          std::thread([round] {
            std::this_thread::sleep_for(std::chrono::milliseconds(1 + 7 * round));
            ::kill(::getpid(), SIGKILL);
          }).detach();
          auto index = open();
          for (int generation = 1;; ++generation) {
            for (std::uint32_t slot = 0; slot < kSlots; ++slot) put(*index, slot, generation);
          }
        },
        testing::KilledBySignal(SIGKILL), "");
    auto index = open();
    ASSERT_NE(index, nullptr);
    EXPECT_TRUE(index->usable());
    const Entries entries = load(*index);
    EXPECT_EQ(entries.size(), kSlots);
    for (const auto& [slot, entry] : entries) {
      EXPECT_EQ(entry.substr(0, entry.find(':')), std::to_string(slot));
    }
  }
}

void overwrite(const std::filesystem::path& file) {
  std::ofstream(file, std::ios::binary) << std::string(5'000, 'x');
}

class DamagedRocksTest : public RocksSlotIndexTest,
                         public testing::WithParamInterface<const char*> {};

TEST_P(DamagedRocksTest, I22OpensEmptyAndSaysSo) {
  write_some();
  {
    auto index = open();  // a second start, so that there are tables beside the log
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) put(*index, slot, 1);
  }
  (void)open();
  int damaged = 0;
  for (const auto& file : std::filesystem::directory_iterator(path_)) {
    if (file.path().filename().string().find(GetParam()) == std::string::npos) continue;
    overwrite(file.path());
    ++damaged;
  }
  ASSERT_GT(damaged, 0) << "nothing like " << GetParam() << " there";
  auto index = open();
  ASSERT_NE(index, nullptr);
  if (index->usable()) {  // found only when it is read
    const auto loaded = index->load([](std::uint32_t, std::span<const std::byte>) {});
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::corrupt);
  }
  EXPECT_FALSE(index->usable());
  put(*index, 1);
  ASSERT_TRUE(index->mark_complete());
  EXPECT_EQ(load(*index).size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Files, DamagedRocksTest, testing::Values("CURRENT", "MANIFEST", ".sst"));

TEST_F(RocksSlotIndexTest, I22ADamagedLogCostsEntriesOnly) {
  write_some();
  for (const auto& file : std::filesystem::directory_iterator(path_)) {
    if (file.path().extension() == ".log") overwrite(file.path());
  }
  auto index = open();
  ASSERT_NE(index, nullptr);
  if (!index->usable()) {
    put(*index, 1);
    EXPECT_TRUE(index->mark_complete());
  }
  EXPECT_LE(load(*index).size(), kSlots);
}

TEST_F(RocksSlotIndexTest, AFileInItsPlaceIsAnError) {
  std::ofstream(path_) << "not a directory";
  std::string said;
  const auto index = open_rocks_slot_index(path_, kSlots, kEntryBytes,
                                           [&](const std::string& line) { said += line; });
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, Code::io_error);
  EXPECT_NE(said.find(path_), std::string::npos);
}

// O053, O060: a disk that is full. A limit of file sizes stands in for it: writes end with EFBIG.
[[noreturn]] void fill_the_disk(const std::string& path) {
  ::signal(SIGXFSZ, SIG_IGN);
  auto index = open_rocks(path);
  const rlimit limit = {64 * KiB, 64 * KiB};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  for (int generation = 0; generation < 20; ++generation) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) put(*index, slot, generation);
  }
  const bool flushed = index->flush().has_value();
  const bool counted = index->failures() > 0;
  index.reset();
  std::exit(!flushed && counted ? 0 : 1);
}

TEST_F(RocksSlotIndexTest, I24AFullDiskCountsFailuresAndEndsNormally) {
  EXPECT_EXIT(fill_the_disk(path_), testing::ExitedWithCode(0), "");
  auto index = open();  // with room again
  ASSERT_NE(index, nullptr);
  EXPECT_FALSE(index->usable()) << "it lacks updates: the records must be scanned";
  put(*index, 1);
  ASSERT_TRUE(index->mark_complete());
  EXPECT_EQ(load(*index).size(), 1U);
}

// O057: a child of fork() has neither the threads nor the locks.
TEST_F(RocksSlotIndexTest, AForkedChildIsInertAndTheParentGoesOn) {
  auto index = open();
  put(*index, 1);
  ASSERT_TRUE(index->flush());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the worker sleeps in its wait now
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const std::string entry = entry_of(2);
    (void)index->put(2, std::as_bytes(std::span(entry)));
    const bool refused = !index->flush();
    index.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  put(*index, 3);
  ASSERT_TRUE(index->mark_complete());
  index.reset();
  EXPECT_EQ(load(*open()).size(), 2U);
}

// O058: the process ends while the index works, with nobody closing it.
TEST_F(RocksSlotIndexTest, ExitWithoutCloseIsClean) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_EXIT(
        {
          static std::unique_ptr<SlotIndex> index = open();
          for (std::uint32_t slot = 0; slot < kSlots; ++slot) put(*index, slot);
          std::exit(0);
        },
        testing::ExitedWithCode(0), "");
    EXPECT_NE(open(), nullptr);
  }
}

TEST_F(RocksSlotIndexTest, WritesNothingToStandardOutputOrError) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  write_some();
  overwrite(path_ + "/CURRENT");
  (void)open();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Rewrites every slot again and again, in random order: what a database with level compaction finds
// hardest. The bound is what the NVMe tier leaves free for it.
TEST_F(RocksSlotIndexTest, I16DiskStaysWithinItsBound) {
  constexpr std::uint32_t kMany = 4'000;
  const std::uint64_t bytes_max = rocks_slot_index_bytes_max(kMany, kEntryBytes);
  auto index = std::move(*open_rocks_slot_index(path_, kMany, kEntryBytes));
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> peak = 0;
  std::thread sampler([&] {
    while (!done) {
      peak = std::max(peak.load(), test::disk_usage(path_));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  std::mt19937 random(1);
  for (int i = 0; i < 60'000; ++i)
    put(*index, random() % kMany, static_cast<int>(random() % 1'000));
  EXPECT_TRUE(index->flush());
  done = true;
  sampler.join();
  EXPECT_EQ(index->failures(), 0U);
  EXPECT_LE(peak, bytes_max) << format_bytes(peak) << " of " << format_bytes(bytes_max);
  EXPECT_GT(peak, bytes_max / 10) << "the bound wastes more than it needs";
}

TEST_F(RocksSlotIndexTest, FilesAreNotInherited) {
  auto index = open();
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (error || target.string().find(path_) != 0) continue;
    const int fd = std::stoi(entry.path().filename());
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << target;
  }
}

#endif  // TERRACE_WITH_ROCKSDB

}  // namespace
}  // namespace terrace::internal
