// Down: HBM to DRAM to NVMe, behind every commit. Copies are made early, so that making room above
// is instant.
#include <algorithm>

#include "base/assert.hpp"
#include "move/mover.hpp"

namespace terrace::internal {

// Starts copies while there are credits.
bool Mover::spill_to_dram() {
  IdList& wants = store_.wants_dram();
  if (!store_.has(kDram0) || wants.empty() || spills_in_flight_ >= spills_max_) return false;
  // While writes to NVMe go on, a spill waits for a DRAM slot whose block is safe below; otherwise,
  // as where DRAM is the lowest place, the coldest block makes room.
  const Loss loss =
      store_.wants_nvme().empty() && writes_in_flight_ == 0 ? Loss::allowed : Loss::refused;
  Batch& batch = new_batch({});
  copies_.clear();
  while (!wants.empty() && spills_in_flight_ + batch.movements.size() < spills_max_) {
    const BlockId id = wants.front();
    if (!store_.begin_landing(id, kDram0, loss)) break;
    store_.pin(id, kHbm0);
    copies_.push_back({tiers_.dram.payload(store_.at(id, kDram0).slot),
                       tiers_.hbm.data(store_.at(id, kHbm0).slot), tiers_.layout.block_bytes()});
    batch.movements.push_back({id, kDram0, kHbm0});
  }
  if (batch.movements.empty()) {
    free_batches_.push_back(&batch);
    return false;
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
    for (const Movement& movement : batch.movements) {
      if (store_.wants_dram().contains(movement.block)) store_.wants_dram().remove(movement.block);
    }
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

bool Mover::spill_to_nvme() {
  IdList& wants = store_.wants_nvme();
  bool moved = false;
  while (store_.has(kNvme0) && !wants.empty() &&
         writes_in_flight_ < std::max<std::size_t>(transfers_.size() / 2, 1) &&
         !free_transfers_.empty()) {
    const BlockId id = wants.front();
    if (!store_.begin_landing(id, kNvme0, Loss::allowed)) break;
    wants.remove(id);
    store_.pin(id, kDram0);
    new_transfer(Transfer::Step::writing, id);
    moved = true;
  }
  return moved;
}

bool Mover::retire_transfer(const Reaped& reaped) {
  Transfer& transfer = transfers_[reaped.transfer];
  if (transfer.step == Transfer::Step::reading) {
    retire_read(transfer, reaped);
  } else {
    retire_write(transfer, reaped);
  }
  return true;
}

void Mover::retire_read(Transfer& transfer, const Reaped& reaped) {
  const BlockId id = transfer.block;
  PlaceStats& stats = store_.stats().places[kNvme0];
  stats.bytes_read += tiers_.layout.block_bytes();
  end_transfer(transfer);
  if (reaped.os_error == 0 && reaped.verdict == Verdict::good) {
    store_.finish_landing(id, kDram0);
    store_.unpin(id, kNvme0);
    return;
  }
  if (reaped.os_error != 0) ++stats.io_errors;
  if (reaped.verdict != Verdict::good) ++stats.corrupt_blocks;
  if (store_.state(id, kNvme0) == BlockState::resident) {
    to_forget_.push_back(store_.at(id, kNvme0).slot);
    store_.condemn(id, kNvme0);
  }
  store_.fail_landing(id, kDram0);
  store_.unpin(id, kNvme0);
}

void Mover::retire_write(Transfer& transfer, const Reaped& reaped) {
  const BlockId id = transfer.block;
  if (reaped.os_error == 0) {
    store_.stats().places[kNvme0].bytes_written += tiers_.layout.block_bytes();
    transfer.step = Transfer::Step::indexing;
    indexing_.push_back(index_of(transfer));
    return;
  }
  ++store_.stats().places[kNvme0].io_errors;
  end_transfer(transfer);
  store_.fail_landing(id, kNvme0);
  store_.unpin(id, kDram0);
}

// A block is resident on NVMe once the index has taken it; a full queue there is tried again at the
// next tick.
bool Mover::index_written() {
  if (tiers_.nvme == nullptr) return false;
  SlotIndex& index = tiers_.nvme->index();
  std::erase_if(to_forget_, [&index](std::uint32_t slot) { return index.erase(slot); });
  if (!to_forget_.empty()) return false;  // what is in such a slot now must not be forgotten later
  const std::size_t before = indexing_.size();
  std::erase_if(indexing_, [this, &index](std::uint32_t at) {
    Transfer& transfer = transfers_[at];
    const BlockId id = transfer.block;
    const auto header =
        tiers_.dram.record(store_.at(id, kDram0).slot).first(tiers_.format.entry_bytes());
    if (!index.put(store_.at(id, kNvme0).slot, header)) return false;
    end_transfer(transfer);
    store_.finish_landing(id, kNvme0);
    store_.unpin(id, kDram0);
    return true;
  });
  return indexing_.size() != before;
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
