// Down: HBM to DRAM to NVMe, behind every commit. Copies are made early, so that making room above
// is instant.
#include <algorithm>

#include "base/assert.hpp"
#include "move/mover.hpp"

namespace terrace::internal {

// Starts copies while there are credits.
bool Mover::spill_to_dram() {
  const IdList& wants = store_.wants(kDram0);
  if (!store_.has(kDram0) || wants.empty() || spills_in_flight_ >= spills_max_) return false;
  // While writes to NVMe go on, a spill waits for a DRAM slot whose block is safe below; otherwise,
  // as where DRAM is the lowest place, the coldest block makes room.
  const bool writing = nvme_ != nullptr && nvme_->writes_in_flight() > 0;
  const Loss loss = store_.wants(kNvme0).empty() && !writing ? Loss::allowed : Loss::refused;
  run_.clear();
  run_slots_.clear();
  while (!wants.empty() && spills_in_flight_ + run_.size() < spills_max_) {
    const std::uint32_t slot = store_.acquire_slot(kDram0, loss);
    if (slot == kNoSlot) break;
    run_.push_back(wants.front());
    run_slots_.push_back(slot);
    store_.unwant(run_.back(), kDram0);
  }
  if (run_.empty()) return false;
  // Blocks that belong together lie together: a run to NVMe is one piece of memory then.
  std::ranges::sort(run_slots_);
  Batch& batch = new_batch({});
  copies_.clear();
  for (std::size_t i = 0; i < run_.size(); ++i) {
    store_.attach(run_[i], kDram0, run_slots_[i]);
    store_.pin(run_[i], kHbm0);
    copies_.push_back({tiers_.dram.payload(run_slots_[i]),
                       tiers_.hbm.data(store_.at(run_[i], kHbm0).slot),
                       tiers_.layout.block_bytes()});
    batch.movements.push_back({run_[i], kDram0, kHbm0});
  }
  spills_in_flight_ += static_cast<std::uint32_t>(batch.movements.size());
  return start_spill(batch);
}

bool Mover::start_spill(Batch& batch) {
  // The blocks are resident, so the streams that wrote them have passed: the spill stream need not
  // wait for them.
  const Result<void> copied = device_.copy(spill_stream_, copies_);
  if (!copied) {
    end_batch(batch, false);  // which wants them again
    if (copied.error().code == Code::retry_later) return false;
    for (const Movement& movement : batch.movements) store_.unwant(movement.block, kDram0);
    return false;
  }
  const std::uint64_t bytes = batch.movements.size() * tiers_.layout.block_bytes();
  store_.stats().places[kHbm0].bytes_read += bytes;
  store_.stats().places[kDram0].bytes_written += bytes;
  batch.point.stream = spill_stream_;
  batch.is_recorded = false;
  start_batch(batch);
  return true;
}

// In runs: consecutive blocks of a chain into consecutive slots of one drive, the next run to the
// next drive.
bool Mover::spill_to_nvme() {
  if (nvme_ == nullptr || store_.wants(kNvme0).empty()) return false;
  if (store_.pool(kNvme0).quarantined() == store_.pool(kNvme0).capacity()) {
    shed_all();
    return false;
  }
  bool moved = false;
  while (write_run(std::min(nvme_->run_blocks_max(), nvme_->writes_free()))) moved = true;
  return moved;
}

// Returns: whether anything was started, and there may be more.
bool Mover::write_run(std::uint32_t blocks_max) {
  const IdList& wants = store_.wants(kNvme0);
  const std::uint64_t bytes = tiers_.format.record_bytes();
  run_.clear();
  run_slots_.clear();
  while (run_.size() < blocks_max && !wants.empty()) {
    const BlockId id = wants.front();
    if (!admission_.admit(store_.table()[id].key, bytes, store_.now())) {
      store_.unwant(id, kNvme0);
      ++store_.stats().nvme_shed_blocks;
      continue;
    }
    const std::uint32_t slot = store_.acquire_slot(kNvme0, Loss::allowed, next_drive_);
    if (slot == kNoSlot) {
      admission_.refund(bytes);
      break;
    }
    store_.unwant(id, kNvme0);
    run_.push_back(id);
    run_slots_.push_back(slot);
  }
  std::ranges::sort(run_slots_);  // slots that lie together get blocks that belong together
  for (std::size_t i = 0; i < run_.size(); ++i) {
    store_.attach(run_[i], kNvme0, run_slots_[i]);
    store_.pin(run_[i], kDram0);
    nvme_->start(Transfer::Step::writing, run_[i]);
  }
  next_drive_ = (next_drive_ + 1) % tiers_.nvme->drive_count();
  return run_.size() == blocks_max && blocks_max > 0;
}

// There is no drive left to write to.
void Mover::shed_all() noexcept {
  const IdList& wants = store_.wants(kNvme0);
  store_.stats().nvme_shed_blocks += wants.size();
  while (!wants.empty()) store_.unwant(wants.front(), kNvme0);
}

// ---- Out of an engine's pool.

StoreState* Mover::new_store() noexcept {
  if (free_stores_.empty()) return nullptr;
  StoreState* state = free_stores_.back();
  free_stores_.pop_back();
  state->done.store(false, std::memory_order_relaxed);
  state->active = true;
  state->orphaned = false;
  state->stored = 0;
  state->complete = true;
  return state;
}

void Mover::end_store(StoreState& state) noexcept {
  state.active = false;
  state.done.store(true, std::memory_order_release);
  if (state.orphaned) free_stores_.push_back(&state);
}

void Mover::abandon_unstarted(StoreState& state) noexcept {
  state.active = false;
  free_stores_.push_back(&state);
}

void Mover::abandon(StoreState& state) noexcept {
  state.orphaned = true;
  if (!state.active) free_stores_.push_back(&state);
}

Result<void> Mover::copy_from_pool(const Pool& pool, std::span<const std::uint32_t> slots,
                                   std::span<const Movement> movements, StreamPoint after,
                                   StoreState& state) {
  TERRACE_ASSERT(slots.size() == movements.size(), slots.size());
  copies_.clear();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (movements[i].to == kNowhere) continue;
    std::byte* payload = tiers_.dram.payload(store_.at(movements[i].block, kDram0).slot);
    for (const PoolRegion& region : pool.regions) {
      copies_.push_back(
          {payload + tiers_.layout.component_slice(region.layer, region.component).offset,
           region.base + slots[i] * region.stride_bytes, region.bytes});
    }
  }
  // The stream waits for the engine's kernels; the host does not.
  if (Result<void> waits = device_.wait(spill_stream_, after); !waits) return waits;
  if (Result<void> copied = device_.copy(spill_stream_, copies_); !copied) return copied;
  Batch& batch = new_batch({spill_stream_, 0});
  batch.is_recorded = false;
  for (const Movement& movement : movements) {
    if (movement.to != kNowhere) batch.movements.push_back(movement);
  }
  batch.store = &state;
  batch.pool = state.pool;
  ++pools_[state.pool].operations;
  start_batch(batch);
  return {};
}

}  // namespace terrace::internal
