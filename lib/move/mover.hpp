// The mover: the only code that moves bytes between tiers. Read mover.cpp from the top first.
//
//   up    NVMe --read, verify--> DRAM --copy--> HBM or an engine's pool    for a fetch (fetch.cpp)
//   down  HBM or an engine's pool --copy--> DRAM --seal, write--> NVMe     behind a commit (spill.cpp)
//
// What happens on NVMe ends in nvme.cpp; the queues to the drives are NvmeTransfers.
//
// Decide under the lock, work outside it: tick() changes states and lists what to do; reap() and
// submit() touch bytes and the device. Credits: writes get at most half of the NVMe queue, so that
// spills never starve fetches. Must never choose what to keep (the policy does) or block.
// Thread rule: functions marked [lock] under the cache's lock, functions marked [pump] by one
// thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "index/record.hpp"
#include "move/block_store.hpp"
#include "move/nvme_transfers.hpp"
#include "move/operation_state.hpp"
#include "policy/admission.hpp"
#include "terrace/options.hpp"
#include "tier/tiers.hpp"

namespace terrace::internal {

class Mover {
 public:
  // `clock` is the pump's; under the lock it is the store's time.
  Mover(BlockStore& store, Tiers& tiers, CopyEngine& device, const Clock& clock,
        const Options& options);

  // Creates the streams. Returns: success; out_of_memory.
  Result<void> open();
  void close() noexcept;  // REQUIRES: idle()
  // After recovery: records written from here on are newer. Where it is `warm`, there are records of
  // an earlier process, which may have spent the budget of writes, however often it was started anew.
  void resume(std::uint64_t next_sequence, bool warm) noexcept {
    nvme_->resume_sequence(next_sequence);
    if (warm) admission_.empty(store_.now());
  }

  // ---- Operations [lock].
  FetchState* new_fetch() noexcept;  // null: too many in progress
  // `state` has its blocks, places and pins. Starts it, perhaps ends it at once.
  void start_fetch(FetchState& state);
  void cancel_fetch(FetchState& state) noexcept;  // it ends soon, with the prefix that is there
  void abandon(FetchState& state) noexcept;       // nobody will ask for it again

  // REQUIRES: state.done, layer is in the layout.
  StreamPoint layer_point(const FetchState& state, std::uint32_t layer) const noexcept {
    return state.points[layer / layers_per_group_];
  }

  StoreState* new_store() noexcept;
  void abandon(StoreState& state) noexcept;
  Batch& new_batch(StreamPoint point);
  // Ends `batch` at once if its point has passed; otherwise some later tick() does.
  void start_batch(Batch& batch);
  // Copies the blocks in `movements` (already landing in DRAM) out of a pool, and starts the batch.
  Result<void> copy_from_pool(const Pool& pool, std::span<const std::uint32_t> slots,
                              std::span<const Movement> movements, StreamPoint after,
                              StoreState& state);

  void abandon_unstarted(StoreState& state) noexcept;
  // Copies up that are enqueued from here on start after `after`.
  Result<void> loads_wait(StreamPoint after) { return device_.wait(load_stream_, after); }
  // Drops every unpinned copy from `place`. Returns: how many.
  std::uint64_t drop(PlaceId place);
  // A request has asked for these: what admission to NVMe goes by.
  bool counts_requests() const noexcept { return admission_.limited(); }
  void saw(std::span<const BlockKey> keys) noexcept { admission_.saw(keys); }
  void cancel_all() noexcept;
  void cancel_into(std::uint32_t pool) noexcept;  // fetches into an engine's pool
  std::uint64_t backlog_blocks() const noexcept;
  std::uint64_t unanswered_blocks() const noexcept { return nvme_ == nullptr ? 0 : nvme_->late(); }

  std::vector<Pool>& pools() noexcept { return pools_; }

  // Returns: how many drives were given up since the last call [lock].
  std::uint32_t take_lost_drives() noexcept { return std::exchange(drives_lost_, 0); }

  // ---- The pump.
  bool reap();                 // [pump] takes results from the device and verifies what was read
  bool tick();                 // [pump, lock] moves every state on
  bool submit();               // [pump] seals what is to be written, and starts transfers
  bool idle() const noexcept;  // [lock] nothing in flight
  bool has_backlog() const noexcept;  // [lock] something is still to be spilled, and can be
  std::span<BlockDevice* const> drives() const noexcept;  // [pump] to wait for
  bool device_may_work() const noexcept { return batches_in_flight_ > 0; }

 private:
  // fetch.cpp
  bool advance_fetch(FetchState& state);
  void issue_reads(FetchState& state);
  bool plan_read(FetchState& state, std::uint32_t index);
  bool is_ready(const FetchState& state, std::uint32_t index) const noexcept;
  std::uint32_t looks() const noexcept { return nvme_ == nullptr ? 0 : nvme_->looks(); }
  bool waits_in_vain(const FetchState& state) const noexcept;
  bool is_lost(const FetchState& state, std::uint32_t index) const noexcept;
  bool choose_run(FetchState& state);
  bool enqueue_run(FetchState& state, bool last);
  Result<StreamPoint> enqueue_group(FetchState& state, bool whole);
  void add_copies(const FetchState& state, std::uint32_t index, std::uint32_t group, bool whole);
  void add_pool_copies(const FetchState& state, std::uint32_t index, const std::byte* from,
                       std::uint32_t first_layer, std::uint32_t last_layer);
  void settle(FetchState& state, StreamPoint point, bool good);
  void end_fetch(FetchState& state) noexcept;
  void recycle(FetchState& state) noexcept;
  void truncate(FetchState& state, std::uint32_t usable, Code reason) noexcept;
  void release_block(FetchState& state, std::uint32_t index, std::uint8_t places) noexcept;
  void account(const FetchState& state) noexcept;

  // spill.cpp
  bool spill_to_dram();
  bool start_spill(Batch& batch);
  bool spill_to_nvme();
  bool write_run(std::uint32_t blocks_max);
  void shed_all() noexcept;
  void end_store(StoreState& state) noexcept;

  // mover.cpp
  bool end_batches();
  PointState state_of(Batch& batch);
  void end_batch(Batch& batch, bool good);

  // nvme.cpp
  bool end_transfers();
  void end_read(std::uint32_t index);
  void end_write(std::uint32_t index);
  void give_up_late(const Transfer& transfer);
  void forget_copy(BlockId id, std::uint32_t slot);
  void note_outcome(std::uint32_t drive, std::int32_t os_error);
  bool index_written();
  bool put(std::uint32_t index);
  void publish_on_nvme(std::uint32_t index);
  bool scrub();

  BlockStore& store_;
  Tiers& tiers_;
  CopyEngine& device_;
  StreamId load_stream_ = 0;
  StreamId spill_stream_ = 0;
  std::uint32_t layers_per_group_ = 1;
  std::uint32_t group_count_ = 1;
  std::uint32_t spills_max_ = 0;  // blocks in flight from HBM to DRAM

  std::vector<Pool> pools_;
  std::vector<std::unique_ptr<FetchState>> fetches_;
  std::vector<FetchState*> free_fetches_;
  std::vector<FetchState*> active_fetches_;
  std::vector<std::unique_ptr<StoreState>> stores_;
  std::vector<StoreState*> free_stores_;
  std::vector<std::unique_ptr<Batch>> batches_;
  std::vector<Batch*> free_batches_;
  std::vector<Batch*> active_batches_;
  std::atomic<std::uint32_t> batches_in_flight_{0};
  std::vector<Copy> copies_;  // scratch
  std::uint32_t spills_in_flight_ = 0;

  std::unique_ptr<NvmeTransfers> nvme_;  // null: no such tier
  struct Publishing {
    std::uint32_t transfer;
    std::uint64_t taken;  // by the index, with this one's update
  };
  std::vector<std::uint32_t> indexing_;   // transfers written, waiting for the index's queue
  std::vector<Publishing> publishing_;    // in that queue
  std::vector<std::uint32_t> to_forget_;  // NVMe slots whose index entry must go
  std::vector<BlockId> run_;              // scratch
  std::vector<std::uint32_t> run_slots_;  // scratch
  std::uint32_t next_drive_ = 0;          // which gets the next run
  std::uint32_t drives_lost_ = 0;         // since take_lost_drives()
  Admission admission_;
  struct Scrub {
    double bytes_per_second = 0;  // 0: off
    double left_bytes = 0;
    Clock::Time refilled{0};
    BlockId next = 0;
  } scrub_;
};

}  // namespace terrace::internal
