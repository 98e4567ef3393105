// Records on their way between DRAM and NVMe: queues, runs, verification.
//
// One transfer is one block. Transfers that follow each other in chain and on the drive travel as
// one run: one request for up to kRunBytes, whose pieces lie in DRAM wherever their slots are. A run
// that fails is tried again block by block, so that one bad sector costs one block. Whoever starts a
// transfer holds a pin on both copies until finish().
// Must never decide what moves. Called by: Mover.
// Thread rule: functions marked [lock] under the cache's lock, functions marked [pump] by one
// thread at a time; what both touch is handed over in hand_over() and take_ended().
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "index/record.hpp"
#include "move/block_store.hpp"
#include "tier/tiers.hpp"

namespace terrace::internal {

struct Transfer {
  enum class Step : std::uint8_t { idle, reading, scrubbing, writing, indexing };
  Step step = Step::idle;
  bool overdue = false;  // the drive has not answered in time; it still may
  BlockId block = kNoBlock;
  std::uint32_t nvme_slot = kNoSlot;  // of the block when it started; a copy may be condemned since
  // How it ended.
  std::int32_t os_error = 0;
  Verdict verdict = Verdict::good;

  bool ok() const noexcept { return os_error == 0 && verdict == Verdict::good; }
  bool is_write() const noexcept { return step == Step::writing || step == Step::indexing; }
};

class NvmeTransfers {
 public:
  // What a drive may take to answer, while somebody polls: of what it did in a pause nobody knows, nor
  // could what waits for its turn be handed over.
  static constexpr std::chrono::nanoseconds kAnswerMax = std::chrono::seconds(30);

  // Without `hashes` nothing is sealed or verified: for benchmarks, which ask what that costs.
  // REQUIRES: tiers.nvme is not null.
  NvmeTransfers(BlockStore& store, Tiers& tiers, const Clock& clock, std::uint32_t queue_depth,
                bool hashes = true);

  std::uint32_t run_blocks_max() const noexcept { return run_blocks_max_; }
  void resume_sequence(std::uint64_t next) noexcept { sequence_ = next; }

  // ---- [lock]
  std::size_t free() const noexcept { return free_.size(); }
  std::uint32_t writes_free() const noexcept;  // writes get at most half of all transfers
  bool idle() const noexcept { return free_.size() == slots_.size(); }
  std::uint32_t writes_in_flight() const noexcept { return writes_ - late_writes_; }
  std::uint32_t late() const noexcept { return late_; }  // overdue, and not answered yet
  // How often watch() has looked, and whether that is too often for whoever waits since then.
  std::uint32_t looks() const noexcept { return looks_; }
  bool is_late(std::uint32_t since) const noexcept { return looks_ - since > kLooksMax; }
  bool reads_in_flight() const noexcept { return slots_.size() - free_.size() > writes_; }

  // REQUIRES: free() > 0, and for a write writes_free() > 0; the block has slots in DRAM and on NVMe.
  void start(Transfer::Step step, BlockId block) noexcept;
  void hand_over();  // what was started is the pump's from here on
  // Calls `end(index)` for each one whose I/O is over; finish() gives it back, then or later.
  template <class End>
  bool take_ended(const End& end);
  void finish(std::uint32_t index) noexcept;
  Transfer& operator[](std::uint32_t index) noexcept { return slots_[index].transfer; }
  // The index of this slot's drive has changed: there is something to sync.
  void note_change(std::uint32_t nvme_slot) noexcept {
    drives_[tiers_.nvme->drive_of(nvme_slot)].unsynced = true;
  }
  std::uint32_t take_failed_syncs() noexcept { return std::exchange(failed_syncs_, 0); }
  // Calls `late(transfer)` once for each one that its drive does not answer, looking once a second.
  template <class Late>
  void watch(const Late& late);

  // ---- [pump]
  bool reap();    // takes results, refills the queues, then verifies what was read
  bool submit();  // forms runs, seals what is to be written, starts requests, seals some more
  std::span<BlockDevice* const> devices() const noexcept { return devices_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  static constexpr std::chrono::nanoseconds kWatchEvery = std::chrono::seconds(1);
  static constexpr std::uint32_t kLooksMax = kAnswerMax / kWatchEvery;

  struct Slot {
    Transfer transfer;
    std::uint32_t started = 0;          // [lock] in looks
    std::uint32_t dram_slot = kNoSlot;  // pinned, so it stays the block's
    // [pump]
    std::uint32_t next = kNone;  // of the run
    std::uint32_t generation = 0;
    bool sealed = false;
  };
  struct Result {
    std::uint32_t head;
    std::int32_t os_error;
  };
  struct Drive {
    std::vector<std::uint32_t> reads;  // heads of runs to submit, in order
    std::vector<std::uint32_t> writes;
    std::size_t sealed = 0;          // of the writes, from the front
    std::uint32_t reads_in_row = 0;  // that it took since the last write
    // Something has changed since the last sync was submitted; at first, perhaps in an earlier process,
    // which was killed.
    bool unsynced = true;
    bool syncing = false;
    std::chrono::nanoseconds synced{0};
    bool is_virtual = false;
  };

  std::uint32_t index_of(const Slot& slot) const noexcept {
    return static_cast<std::uint32_t>(&slot - slots_.data());
  }
  std::uint32_t drive_of(const Slot& slot) const noexcept {
    return tiers_.nvme->drive_of(slot.transfer.nvme_slot);
  }
  std::span<std::byte> record_of(const Slot& slot) const noexcept {
    return tiers_.dram.record(slot.dram_slot);
  }
  bool follows(const Slot& slot, const Slot& before) const noexcept;
  void form_runs();
  void enqueue(std::uint32_t head);
  void collect(std::uint32_t drive);
  void retire(const Result& result);
  bool submit_to(std::uint32_t drive);
  std::size_t submit_portion(std::uint32_t drive);
  void gather(Drive& drive, std::size_t room);
  void note_taken(Drive& drive, std::span<const IoRequest> requests);
  void note_sync(std::uint32_t drive);
  bool is_sync_due(const Drive& drive) const noexcept;
  IoRequest request_of(std::uint32_t head);
  bool seal_ahead(Drive& drive);  // returns: whether there is more to do
  void seal(Slot& slot);

  BlockStore& store_;
  Tiers& tiers_;
  const Clock& clock_;  // [pump]
  const bool hashes_;
  std::uint32_t run_blocks_max_ = 1;
  std::uint32_t queue_depth_ = 1;

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;      // [lock]
  std::uint32_t writes_ = 0;             // [lock]
  std::uint32_t late_writes_ = 0;        // [lock] of these, overdue
  std::uint32_t late_ = 0;               // [lock] with reads
  std::vector<std::uint32_t> started_;   // [lock] decided in this round
  std::chrono::nanoseconds watched_{0};  // [lock] the last look
  std::uint32_t looks_ = 0;              // [lock] at most one each kWatchEvery
  std::vector<std::uint32_t> fresh_;     // [pump] handed over, not in runs yet
  std::vector<Drive> drives_;            // [pump]
  std::vector<Result> results_;          // [pump]
  std::vector<std::uint32_t> ended_;     // [pump], then [lock]
  std::uint32_t failed_syncs_ = 0;       // [pump], then [lock]
  std::vector<IoRequest> requests_;      // [pump] scratch
  std::vector<IoPiece> pieces_;          // [pump] scratch
  std::vector<BlockDevice*> devices_;
  std::uint64_t sequence_ = 0;      // [pump] of the next record
  std::uint64_t sealed_bytes_ = 0;  // [pump] ever
};

template <class End>
bool NvmeTransfers::take_ended(const End& end) {
  const bool any = !ended_.empty();
  for (const std::uint32_t index : ended_) end(index);
  ended_.clear();
  return any;
}

template <class Late>
void NvmeTransfers::watch(const Late& late) {
  const std::chrono::nanoseconds now = store_.now();
  if (idle() || now - watched_ < kWatchEvery) return;
  watched_ = now;
  ++looks_;
  for (Slot& slot : slots_) {
    Transfer& transfer = slot.transfer;
    const bool waits =
        transfer.step != Transfer::Step::idle && transfer.step != Transfer::Step::indexing;
    if (!waits || transfer.overdue || !is_late(slot.started)) continue;
    transfer.overdue = true;
    ++late_;
    if (transfer.is_write()) ++late_writes_;
    late(transfer);
  }
}

}  // namespace terrace::internal
