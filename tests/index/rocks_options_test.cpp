// The bounds of the slot index against the worst that RocksDB can need: flushes that come late,
// compactions that find level 0 full.
#include "index/rocks_options.hpp"

#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/sst_file_manager.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "index/rocks_entries.hpp"
#include "index/sample.hpp"
#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

using namespace std::chrono_literals;

// Holds RocksDB's threads until writers wait, and counts what a compaction asks for: its inputs once
// more, beside all tables.
class LateThreads final : public rocksdb::EventListener {
 public:
  explicit LateThreads(std::shared_ptr<rocksdb::SstFileManager> files) : files_(std::move(files)) {}

  void OnFlushCompleted(rocksdb::DB* database, const rocksdb::FlushJobInfo&) override {
    dawdle([database] {
      std::uint64_t stopped = 0;
      return database->GetIntProperty("rocksdb.is-write-stopped", &stopped) && stopped != 0;
    });
  }
  void OnCompactionCompleted(rocksdb::DB* database, const rocksdb::CompactionJobInfo&) override {
    dawdle([database] {
      std::string tables;
      return database->GetProperty("rocksdb.num-files-at-level0", &tables) && tables == "8";
    });
  }
  void OnCompactionBegin(rocksdb::DB*, const rocksdb::CompactionJobInfo& job) override {
    std::uint64_t asked = files_->GetTotalSize();
    for (const std::string& input : job.input_files) asked += std::filesystem::file_size(input);
    asked_ = std::max(asked_.load(), asked);
    ++compactions_;
  }
  void end() { ended_ = true; }
  std::uint64_t asked() const { return asked_; }
  int compactions() const { return compactions_; }

 private:
  template <typename Until>
  void dawdle(const Until& until) const {
    for (int i = 0; i < 50 && !ended_ && !until(); ++i) std::this_thread::sleep_for(1ms);
  }

  const std::shared_ptr<rocksdb::SstFileManager> files_;
  std::atomic<std::uint64_t> asked_ = 0;
  std::atomic<int> compactions_ = 0;
  std::atomic<bool> ended_ = false;
};

struct Size {
  std::uint32_t slots;
  std::uint32_t entry_bytes;
};

class RocksBoundsTest : public testing::TestWithParam<Size> {};

TEST_P(RocksBoundsTest, I16EveryCompactionFindsRoom) {
  const auto [slots, entry_bytes] = GetParam();
  const test::TempDir directory;
  const RocksBounds bounds = rocks_bounds(slots, entry_bytes);
  rocksdb::Options options = rocks_options(bounds);
  options.sst_file_manager->SetMaxAllowedSpaceUsage(0);  // what it asks for, not what it gets
  const auto threads = std::make_shared<LateThreads>(options.sst_file_manager);
  options.listeners.push_back(threads);
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, directory / "index", &opened).ok());
  const std::unique_ptr<rocksdb::DB> database(opened);

  rocksdb::WriteOptions at_once;
  at_once.no_slowdown = true;  // as the index writes
  std::mt19937 random(1);
  const std::string entry(entry_bytes, 'e');
  for (std::uint64_t written = 0; written < 10 * std::uint64_t{slots};) {
    rocksdb::WriteBatch batch;
    while (batch.GetDataSize() < bounds.batch_bytes) {
      const auto key = rocks_key_of(random() % slots);
      batch.Put(rocksdb::Slice(key.data(), key.size()), entry);
      ++written;
    }
    rocksdb::Status status;
    while ((status = database->Write(at_once, &batch)).IsIncomplete()) {
      std::this_thread::sleep_for(1ms);
    }
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  threads->end();
  ASSERT_TRUE(database->Close().ok());
  EXPECT_GT(threads->compactions(), 3);
  EXPECT_LE(threads->asked(), bounds.tables_max)
      << format_bytes(threads->asked()) << " of " << format_bytes(bounds.tables_max);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RocksBoundsTest,
                         testing::Values(Size{1'000, 400}, Size{4'000, 400}, Size{300, 5'000}));

}  // namespace
}  // namespace terrace::internal
