// The slot index in RocksDB. Every update goes through a bounded queue to a thread of its own, so
// that neither a compaction nor a full disk ever stops the pump.
//
// One column family, one write policy: each update is in the write-ahead log before it counts as
// written, and the log is synced when sync_soon() says so, on the worker. After kill -9 nothing is lost,
// since the kernel has the bytes. After a power cut the log may end early: what is lost is hits; and
// an entry that survived while its record did not names bytes that do not verify, which is a miss.
//
// After one lost update the database is given up: closed, removed, and made anew at the next start.
//
// RocksDB keeps what its databases need in globals. A database that is still open when the process
// ends is closed by an exit handler, since a cache in an older global would close it too late.
//
// Thread rule: as SlotIndex. The worker has the database while anything is queued, the caller has
// it once the queue is drained; the worker never calls the log.
#include <rocksdb/db.h>
#include <rocksdb/statistics.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "index/rocks_entries.hpp"
#include "index/rocks_options.hpp"
#include "index/slot_index.hpp"
#include "index/update_queue.hpp"
#include "io/owner_process.hpp"

namespace terrace::internal {
namespace {

using Log = std::function<void(const std::string& line)>;

// What cannot be removed shows when the database is opened again; there is nothing else to do.
void destroy_database(const std::string& path, const rocksdb::Options& options) {
  (void)guarded([&] { return rocksdb::DestroyDB(path, options); });
}

void append(const UpdateQueue::Update& update, rocksdb::WriteBatch& batch) {
  const auto key = rocks_key_of(update.slot);
  const rocksdb::Slice key_slice(key.data(), key.size());
  if (update.header.empty()) {
    batch.Delete(key_slice);
  } else {
    const auto* value = reinterpret_cast<const char*>(update.header.data());
    batch.Put(key_slice, rocksdb::Slice(value, update.header.size()));
  }
}

std::size_t batch_max(const RocksBounds& bounds, std::uint32_t entry_bytes) {
  return std::clamp<std::size_t>(bounds.batch_bytes / entry_bytes, 1, 256);
}

class RocksSlotIndex final : public SlotIndex {
 public:
  RocksSlotIndex(std::string path, std::uint32_t slot_count, std::uint32_t entry_bytes, Log log)
      : path_(std::move(path)),
        entry_bytes_(entry_bytes),
        batch_max_(batch_max(rocks_bounds(slot_count, entry_bytes), entry_bytes)),
        options_(rocks_options(rocks_bounds(slot_count, entry_bytes))),
        log_(std::move(log)),
        queue_(std::make_unique<UpdateQueue>(entry_bytes)) {}
  ~RocksSlotIndex() override;

  // Opens the database, if need be anew, and starts the worker.
  Result<void> start();
  void end();

  bool usable() const noexcept override { return complete_; }
  Result<void> load(const Visitor& visit) override;
  bool put(std::uint32_t slot, std::span<const std::byte> header) override {
    return push(slot, header);
  }
  bool erase(std::uint32_t slot) override { return push(slot, {}); }
  void sync_soon() override { (void)push(kSyncMark, {}); }  // a full queue: the next one will do
  Result<void> mark_complete() override;
  std::uint64_t failures() const noexcept override { return failures_.load(); }
  std::uint64_t bytes_written() const noexcept override;
  std::uint64_t taken() const noexcept override { return taken_; }
  std::uint64_t written() const noexcept override {
    return written_.load(std::memory_order_acquire);
  }
  Result<void> flush() override;

 private:
  static constexpr std::chrono::milliseconds kPatience{20'000};
  static constexpr std::uint32_t kSyncMark = 0xffffffffu;  // no slot: "sync what came before"

  // Threads and locks do not survive fork(): a child must touch neither.
  bool forked() const noexcept { return !owner_.is_this(); }
  bool push(std::uint32_t slot, std::span<const std::byte> header);
  rocksdb::Status open_database();
  rocksdb::Status reopen_empty(const rocksdb::Status& reason);
  void close_database();
  rocksdb::Status write(rocksdb::WriteBatch& batch);
  void give_up(const rocksdb::Status& reason, std::size_t lost);
  void run();

  const std::string path_;
  const std::uint32_t entry_bytes_;
  const std::size_t batch_max_;
  const rocksdb::Options options_;
  const Log log_;
  const OwnerProcess owner_{};
  std::unique_ptr<UpdateQueue> queue_;
  // The worker's while anything is queued, the caller's otherwise; so is reason_.
  std::unique_ptr<rocksdb::DB> database_;  // null: given up, and every update fails
  std::atomic<bool> complete_ = false;
  std::atomic<std::uint64_t> failures_ = 0;
  std::uint64_t taken_ = 0;  // the caller's
  std::atomic<std::uint64_t> written_ = 0;
  std::string reason_;  // why it was given up, until flush() has said so
  std::thread worker_;
  std::atomic<bool> ended_ = false;
};

// All indexes that are open, so that they can be ended before RocksDB's globals are.
class OpenIndexes {
 public:
  static OpenIndexes& instance() {
    static auto* const all = new OpenIndexes;  // outlives every global
    return *all;
  }
  // Called after a database was opened, so that the handler runs before RocksDB's own.
  void add(RocksSlotIndex* index) {
    const std::lock_guard lock(mutex_);
    if (!registered_) registered_ = std::atexit([] { instance().end_all(); }) == 0;
    indexes_.push_back(index);
  }
  void remove(RocksSlotIndex* index) {
    const std::lock_guard lock(mutex_);
    std::erase(indexes_, index);
  }

 private:
  void end_all() {
    if (!owner_.is_this()) return;
    const std::lock_guard lock(mutex_);
    for (RocksSlotIndex* index : indexes_) index->end();
  }

  const OwnerProcess owner_{};
  std::mutex mutex_;
  std::vector<RocksSlotIndex*> indexes_;
  bool registered_ = false;
};

RocksSlotIndex::~RocksSlotIndex() {
  if (forked()) {
    // Their threads are the parent's: to destroy them would wait for those.
    (void)database_.release();
    (void)queue_.release();
    if (worker_.joinable()) worker_.detach();
    return;
  }
  OpenIndexes::instance().remove(this);
  end();
}

// Drains what is queued, and closes the database. What comes afterwards is lost, and counted.
void RocksSlotIndex::end() {
  if (ended_.exchange(true)) return;
  queue_->stop();
  if (worker_.joinable()) worker_.join();
  close_database();
}

Result<void> RocksSlotIndex::start() {
  rocksdb::Status status = open_database();
  if (!status.ok()) status = reopen_empty(status);
  if (!status.ok()) return fail(Code::io_error, "the slot index cannot be opened; see the log");
  complete_ = is_complete(*database_);
  worker_ = std::thread([this] { run(); });
  OpenIndexes::instance().add(this);
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
  destroy_database(path_, options_);
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
  queue_->wait_drained();
  if (database_ == nullptr) return fail(Code::io_error, "the slot index is not open");
  const auto status = visit_rocks_entries(*database_, entry_bytes_, visit);
  if (status.ok()) return {};
  if (!reopen_empty(status).ok()) {
    return fail(Code::io_error, "the slot index cannot be opened; see the log");
  }
  return fail(Code::corrupt, "the slot index was damaged, and is empty now");
}

bool RocksSlotIndex::push(std::uint32_t slot, std::span<const std::byte> header) {
  if (forked() || ended_) {
    ++failures_;
    return true;
  }
  if (!queue_->push(slot, header)) return false;
  ++taken_;
  return true;
}

std::uint64_t RocksSlotIndex::bytes_written() const noexcept {
  const rocksdb::Statistics& statistics = *options_.statistics;
  return statistics.getTickerCount(rocksdb::WAL_FILE_BYTES) +
         statistics.getTickerCount(rocksdb::FLUSH_WRITE_BYTES) +
         statistics.getTickerCount(rocksdb::COMPACT_WRITE_BYTES);
}

Result<void> RocksSlotIndex::mark_complete() {
  if (auto flushed = flush(); !flushed) return flushed;
  rocksdb::WriteBatch batch;
  const auto status = guarded([&] {
    batch.Put(kCompleteKey, "");
    return write(batch);
  });
  if (!status.ok()) give_up(status, 1);
  auto flushed = flush();
  complete_ = flushed.has_value();
  return flushed;
}

Result<void> RocksSlotIndex::flush() {
  if (forked()) return fail(Code::closed, "the slot index belongs to the parent process");
  if (ended_) return fail(Code::closed, "the slot index was closed as the process ends");
  queue_->wait_drained();
  if (database_ != nullptr) {
    const auto status = guarded([&] { return database_->SyncWAL(); });
    if (status.ok()) return {};
    give_up(status, 0);
  }
  if (!reason_.empty() && log_) log_("slot index " + path_ + " is given up: " + reason_);
  reason_.clear();
  return fail(Code::io_error, "the slot index could not be written; see the log");
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

// Without one of its updates the database is not what it says it is, and after an error of its log
// RocksDB 7.8 aborts where it is told to sync (an assertion that Debian's build leaves on). So it
// goes at once: the next start scans the records, also where this process is killed before it ends.
void RocksSlotIndex::give_up(const rocksdb::Status& reason, std::size_t lost) {
  failures_ += lost;
  if (database_ == nullptr) return;
  reason_ = reason.ToString();
  complete_ = false;
  close_database();
  destroy_database(path_, options_);
}

void RocksSlotIndex::run() {
  rocksdb::WriteBatch batch;
  while (const std::size_t count = queue_->wait(batch_max_)) {
    bool sync = false;
    const auto status = guarded([&] {
      batch.Clear();
      for (std::size_t i = 0; i < count; ++i) {
        const UpdateQueue::Update update = queue_->at(i);
        if (update.slot == kSyncMark)
          sync = true;
        else
          append(update, batch);
      }
      return write(batch);
    });
    if (!status.ok()) give_up(status, count);
    if (sync && database_ != nullptr) {
      const auto durable = guarded([&] { return database_->SyncWAL(); });
      if (!durable.ok()) give_up(durable, 0);
    }
    queue_->pop(count);
    written_.fetch_add(count, std::memory_order_release);
  }
}

}  // namespace

std::uint64_t rocks_slot_index_bytes_max(std::uint32_t slot_count, std::uint32_t entry_bytes) {
  return rocks_bounds(slot_count, entry_bytes).bytes_max;
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
