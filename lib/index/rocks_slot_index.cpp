// The slot index in RocksDB. Every update goes through a bounded queue to a thread of its own, so
// that neither a compaction nor a full disk ever stops the pump.
//
// One column family, one write policy: each update is in the write-ahead log before it counts as
// written, and the log is not synced. After kill -9 nothing is lost, since the kernel has the
// bytes. After a power cut the log may end early: what is lost is hits; and an entry that survived
// while its record did not names bytes that do not verify, which is a miss. flush() syncs. Bounds:
// memory by small write buffers and a queue of fixed size; disk see Bounds. Thread rule: as
// SlotIndex; the queue alone is shared with the worker.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/sst_file_manager.h>
#include <rocksdb/table.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "index/slot_index.hpp"
#include "index/update_queue.hpp"
#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

using Log = std::function<void(const std::string& line)>;

constexpr char kCompleteKey[] = "complete";  // not four bytes long, so never a slot

// Drops everything: a database that lives in another process's program writes no files of its own
// accord, and RocksDB's log would grow beside the cap.
class NullLogger final : public rocksdb::Logger {
 public:
  NullLogger() : Logger(rocksdb::FATAL_LEVEL) {}
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

// What N slots cost on disk. `live` is one entry for each slot. Beside it stand level 0 (at most 8
// tables of a write buffer each, then writers wait), and the outputs of a compaction until its
// inputs are gone: as much again, at worst. Rewriting every slot in random order, 4 to 20 times
// over, peaked at these multiples, logs included:
//      slots x entry   1,000 x 400   5,000 x 400   50,000 x 616   200,000 x 400   20,000 x 5,000
//      live, MiB           0.4           2.0           30.3            80.1            95.7
//      peak, MiB           2.4           8.3           72.2           176.9           262.1
//      bytes_max, MiB      6.7          11.5          146.1           354.3           401.2
// RocksDB itself keeps tables_max: it rather stops writing, which is then counted as failures.
struct Bounds {
  std::uint64_t write_buffer_bytes;
  std::uint64_t level_base_bytes;
  std::uint64_t tables_max;
  std::uint64_t bytes_max;
};

Bounds bounds_of(std::uint32_t slot_count, std::uint32_t entry_bytes) noexcept {
  const std::uint64_t live =
      std::uint64_t{slot_count} * (entry_bytes + 20);  // key, sequence, block
  Bounds bounds;
  bounds.write_buffer_bytes = std::clamp<std::uint64_t>(live / 16, 128 * KiB, 4 * MiB);
  bounds.level_base_bytes = 4 * bounds.write_buffer_bytes;
  bounds.tables_max = 3 * live + 24 * bounds.write_buffer_bytes;
  const std::uint64_t logs = 4 * bounds.write_buffer_bytes;
  const std::uint64_t rest = 2 * MiB;  // manifests, options, directory
  bounds.bytes_max = bounds.tables_max + logs + rest;
  return bounds;
}

rocksdb::Options options_for(const Bounds& bounds) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.info_log = std::make_shared<NullLogger>();
  options.env = rocksdb::Env::Default();
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.manual_wal_flush = false;
  options.write_buffer_size = bounds.write_buffer_bytes;
  options.max_write_buffer_number = 2;
  options.max_total_wal_size = 2 * bounds.write_buffer_bytes;
  options.allow_fallocate = false;  // preallocated tails of logs would count against the cap
  options.max_manifest_file_size = 256 * KiB;
  options.keep_log_file_num = 1;
  options.max_background_jobs = 1;
  options.max_open_files = 64;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.compression = rocksdb::kNoCompression;  // digests and token ids: nothing to gain
  options.level0_file_num_compaction_trigger = 4;
  options.level0_slowdown_writes_trigger = 6;
  options.level0_stop_writes_trigger = 8;
  options.target_file_size_base = bounds.write_buffer_bytes;
  options.target_file_size_multiplier = 2;
  options.max_bytes_for_level_base = bounds.level_base_bytes;
  options.max_compaction_bytes = 8 * bounds.level_base_bytes;
  options.level_compaction_dynamic_level_bytes = true;  // space amplification near 1.1
  options.sst_file_manager.reset(rocksdb::NewSstFileManager(options.env, options.info_log));
  options.sst_file_manager->SetMaxAllowedSpaceUsage(bounds.tables_max);
  rocksdb::BlockBasedTableOptions table;  // no filters: entries are loaded, never looked up
  table.block_size = 16 * KiB;
  table.block_cache = rocksdb::NewLRUCache(1 * MiB);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// RocksDB reports by Status, but its allocations and parsers may throw; nothing escapes from here.
template <class Call>
rocksdb::Status guarded(Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return rocksdb::Status::Aborted(error.what());
  }
}

void destroy_database(const std::string& path) {
  rocksdb::Options options;
  options.info_log = std::make_shared<NullLogger>();
  // What cannot be removed shows when the database is opened again; there is nothing else to do.
  (void)guarded([&] { return rocksdb::DestroyDB(path, options); });
}

std::array<char, 4> key_of(std::uint32_t slot) noexcept {  // big-endian: iterates in order of slots
  return {static_cast<char>(slot >> 24), static_cast<char>(slot >> 16),
          static_cast<char>(slot >> 8), static_cast<char>(slot)};
}

std::uint32_t slot_of(const rocksdb::Slice& key) noexcept {
  std::uint32_t slot = 0;
  for (std::size_t i = 0; i < 4; ++i) slot = slot << 8 | static_cast<std::uint8_t>(key[i]);
  return slot;
}

void append(const UpdateQueue::Update& update, rocksdb::WriteBatch& batch) {
  const auto key = key_of(update.slot);
  const rocksdb::Slice key_slice(key.data(), key.size());
  if (update.header.empty()) {
    batch.Delete(key_slice);
  } else {
    const auto* value = reinterpret_cast<const char*>(update.header.data());
    batch.Put(key_slice, rocksdb::Slice(value, update.header.size()));
  }
}

class RocksSlotIndex final : public SlotIndex {
 public:
  RocksSlotIndex(std::string path, std::uint32_t slot_count, std::uint32_t entry_bytes, Log log)
      : path_(std::move(path)),
        entry_bytes_(entry_bytes),
        options_(options_for(bounds_of(slot_count, entry_bytes))),
        log_(std::move(log)),
        queue_(entry_bytes) {}
  ~RocksSlotIndex() override;

  // Opens the database, if need be anew, and starts the worker.
  Result<void> start();

  bool usable() const noexcept override { return complete_; }
  Result<void> load(const Visitor& visit) override;
  bool put(std::uint32_t slot, std::span<const std::byte> header) override {
    return push(slot, header);
  }
  bool erase(std::uint32_t slot) override { return push(slot, {}); }
  Result<void> mark_complete() override;
  std::uint64_t failures() const noexcept override { return failures_.load(); }
  Result<void> flush() override;

 private:
  static constexpr std::size_t kBatchMax = 256;
  static constexpr std::chrono::milliseconds kPatience{5'000};

  // Threads and locks do not survive fork(): a child must touch neither.
  bool forked() const noexcept { return ::getpid() != owner_; }
  bool push(std::uint32_t slot, std::span<const std::byte> header);
  rocksdb::Status open_database();
  rocksdb::Status reopen_empty(const rocksdb::Status& reason);
  void close_database();
  rocksdb::Status write(rocksdb::WriteBatch& batch);
  void give_up(const rocksdb::Status& reason, std::size_t lost);
  void run();

  const std::string path_;
  const std::uint32_t entry_bytes_;
  const rocksdb::Options options_;
  const Log log_;
  const pid_t owner_ = ::getpid();
  UpdateQueue queue_;
  std::unique_ptr<rocksdb::DB> database_;  // null: given up; every update fails.
  // The worker's while the queue is not drained, the caller's otherwise
  std::atomic<bool> complete_ = false;
  std::atomic<std::uint64_t> failures_ = 0;
  std::string reason_;  // why it was given up; shared as database_ is
  std::thread worker_;
};

RocksSlotIndex::~RocksSlotIndex() {
  if (forked()) {
    database_.release();  // its threads are the parent's
    if (worker_.joinable()) worker_.detach();
    return;
  }
  queue_.stop();
  if (worker_.joinable()) worker_.join();
  close_database();
}

Result<void> RocksSlotIndex::start() {
  rocksdb::Status status = open_database();
  if (!status.ok()) status = reopen_empty(status);
  if (!status.ok()) return fail(Code::io_error, "the slot index cannot be opened; see the log");
  std::string ignored;
  complete_ = database_->Get(rocksdb::ReadOptions(), kCompleteKey, &ignored).ok();
  worker_ = std::thread([this] { run(); });
  return {};
}

rocksdb::Status RocksSlotIndex::open_database() {
  rocksdb::DB* database = nullptr;
  const auto status = guarded([&] { return rocksdb::DB::Open(options_, path_, &database); });
  database_.reset(database);
  return status;
}

rocksdb::Status RocksSlotIndex::reopen_empty(const rocksdb::Status& reason) {
  if (log_) log_("slot index " + path_ + ": " + reason.ToString() + "; starting it anew");
  complete_ = false;
  close_database();
  destroy_database(path_);
  const rocksdb::Status status = open_database();
  if (!status.ok() && log_) log_("slot index " + path_ + ": " + status.ToString());
  return status;
}

// What close reports was reported before: each update has its own status, and flush() has the
// log's.
void RocksSlotIndex::close_database() {
  if (database_ == nullptr) return;
  (void)guarded([&] { return database_->Close(); });
  database_.reset();
}

Result<void> RocksSlotIndex::load(const Visitor& visit) {
  if (forked()) return fail(Code::closed, "the slot index belongs to the parent process");
  queue_.wait_drained();
  if (database_ == nullptr) return fail(Code::io_error, "the slot index is not open");
  rocksdb::ReadOptions read;
  read.fill_cache = false;
  read.readahead_size = 1 * MiB;
  std::vector<std::uint64_t> aligned((entry_bytes_ + 7) / 8);
  std::unique_ptr<rocksdb::Iterator> entry(database_->NewIterator(read));
  for (entry->SeekToFirst(); entry->Valid(); entry->Next()) {
    const rocksdb::Slice value = entry->value();
    if (entry->key().size() != 4 || value.size() > entry_bytes_) continue;
    std::memcpy(aligned.data(), value.data(), value.size());
    visit(slot_of(entry->key()), std::as_bytes(std::span(aligned)).first(value.size()));
  }
  const rocksdb::Status status = entry->status();
  if (status.ok()) return {};
  entry.reset();
  if (!reopen_empty(status).ok()) {
    return fail(Code::io_error, "the slot index cannot be opened; see the log");
  }
  return fail(Code::corrupt, "the slot index was damaged, and is empty now");
}

bool RocksSlotIndex::push(std::uint32_t slot, std::span<const std::byte> header) {
  if (forked()) {
    ++failures_;
    return true;
  }
  return queue_.push(slot, header);
}

Result<void> RocksSlotIndex::mark_complete() {
  if (auto flushed = flush(); !flushed) return flushed;
  rocksdb::WriteOptions durable;
  durable.sync = true;
  const auto status = guarded([&] { return database_->Put(durable, kCompleteKey, ""); });
  if (!status.ok()) return fail(Code::io_error, "the slot index cannot be written");
  complete_ = true;
  return {};
}

Result<void> RocksSlotIndex::flush() {
  if (forked()) return fail(Code::closed, "the slot index belongs to the parent process");
  queue_.wait_drained();
  const std::string reason = std::exchange(reason_, {});
  if (!reason.empty() && log_) log_("slot index " + path_ + ": " + reason + "; it is given up");
  if (database_ == nullptr) return fail(Code::io_error, "the slot index was given up; see the log");
  const auto status = guarded([&] { return database_->SyncWAL(); });
  if (status.ok()) return {};
  if (log_) log_("slot index " + path_ + ": " + status.ToString());
  return fail(Code::io_error, "the slot index could not be made durable");
}

// RocksDB holds writers back, for ever if it has to, while compactions lag. This asks again for a
// while instead: nobody may ever wait for a disk without end, the destructor least of all.
rocksdb::Status RocksSlotIndex::write(rocksdb::WriteBatch& batch) {
  if (database_ == nullptr) return rocksdb::Status::IOError("not open");
  rocksdb::WriteOptions at_once;
  at_once.no_slowdown = true;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  rocksdb::Status status = database_->Write(at_once, &batch);
  while (status.IsIncomplete() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = database_->Write(at_once, &batch);
  }
  return status;
}

// After one lost update the database is no longer what it says it is, and after an error of its log
// RocksDB 7.8 aborts where it is told to sync (an assertion that Debian's build leaves on). So it
// goes at once: the next start scans the records, also where this process is killed before it ends.
void RocksSlotIndex::give_up(const rocksdb::Status& reason, std::size_t lost) {
  failures_ += lost;
  if (database_ == nullptr) return;
  reason_ = reason.ToString();
  complete_ = false;
  close_database();
  destroy_database(path_);
}

void RocksSlotIndex::run() {
  rocksdb::WriteBatch batch;
  while (const std::size_t count = queue_.wait(kBatchMax)) {
    const auto status = guarded([&] {
      batch.Clear();
      for (std::size_t i = 0; i < count; ++i) append(queue_.at(i), batch);
      return write(batch);
    });
    if (!status.ok()) give_up(status, count);
    queue_.pop(count);
  }
}

}  // namespace

std::uint64_t rocks_slot_index_bytes_max(std::uint32_t slot_count, std::uint32_t entry_bytes) {
  return bounds_of(slot_count, entry_bytes).bytes_max;
}

Result<std::unique_ptr<SlotIndex>> open_rocks_slot_index(const std::string& path,
                                                         std::uint32_t slot_count,
                                                         std::uint32_t entry_bytes,
                                                         const Log& log) {
  auto index = std::make_unique<RocksSlotIndex>(path, slot_count, entry_bytes, log);
  if (auto started = index->start(); !started) return unexpected(started.error());
  return std::unique_ptr<SlotIndex>(std::move(index));
}

}  // namespace terrace::internal
