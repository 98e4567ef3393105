#include "move/mover.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace terrace::internal {
namespace {

// Large enough to keep a copy stream busy between two polls, small enough that the engine's pages
// are not all in flight.
constexpr std::uint64_t kSpillBytesInFlight = 64 * MiB;

}  // namespace

Mover::Mover(BlockStore& store, Tiers& tiers, CopyEngine& device, const Clock& clock,
             const Options& options)
    : store_(store),
      tiers_(tiers),
      device_(device),
      admission_(options.nvme_write_bytes_per_day, store.table().capacity()) {
  const std::uint32_t layers = tiers.layout.layer_count();
  const std::uint64_t layer_bytes = tiers.layout.layer_slice(0).bytes;
  layers_per_group_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      (options.layer_copy_bytes + layer_bytes - 1) / layer_bytes, 1, layers));
  group_count_ = (layers + layers_per_group_ - 1) / layers_per_group_;
  spills_max_ = static_cast<std::uint32_t>(
      std::max<std::uint64_t>(kSpillBytesInFlight / tiers.layout.block_bytes(), 1));

  for (std::uint32_t i = 0; i < options.fetches_max; ++i) {
    free_fetches_.push_back(fetches_.emplace_back(std::make_unique<FetchState>()).get());
    free_stores_.push_back(stores_.emplace_back(std::make_unique<StoreState>()).get());
  }
  active_fetches_.reserve(options.fetches_max);
  if (!store.has(kNvme0)) return;
  nvme_ = std::make_unique<NvmeTransfers>(store, tiers, clock, options.io_queue_depth);
  scrub_.bytes_per_second = static_cast<double>(options.nvme_scrub_bytes_per_second);
  scrub_.refilled = store.now();
}

Result<void> Mover::open() {
  auto load = device_.create_stream();
  if (!load) return unexpected(load.error());
  auto spill = device_.create_stream();
  if (!spill) {
    device_.destroy_stream(*load);
    return unexpected(spill.error());
  }
  load_stream_ = *load;
  spill_stream_ = *spill;
  return {};
}

void Mover::close() noexcept {
  device_.destroy_stream(load_stream_);
  device_.destroy_stream(spill_stream_);
}

// ---- The pump, in the order in which the cache's poll() calls it.

bool Mover::reap() {
  return nvme_ != nullptr && nvme_->reap();
}

bool Mover::tick() {
  bool moved = end_transfers();
  moved |= index_written();
  moved |= end_batches();
  for (std::size_t i = 0; i < active_fetches_.size();) {
    FetchState& state = *active_fetches_[i];
    moved |= advance_fetch(state);
    if (state.active) ++i;  // an ended one was taken out of the list
  }
  moved |= spill_to_dram();
  moved |= spill_to_nvme();
  moved |= scrub();
  if (nvme_ != nullptr) nvme_->hand_over();
  return moved;
}

bool Mover::submit() {
  return nvme_ != nullptr && nvme_->submit();
}

bool Mover::idle() const noexcept {
  return active_fetches_.empty() && active_batches_.empty() && (nvme_ == nullptr || nvme_->idle());
}

bool Mover::has_backlog() const noexcept {
  return !store_.wants(kDram0).empty() || !store_.wants(kNvme0).empty() ||
         !active_batches_.empty() || !to_forget_.empty() ||
         (nvme_ != nullptr && nvme_->writes_in_flight() > 0);
}

std::uint64_t Mover::backlog_blocks() const noexcept {
  return std::uint64_t{store_.wants(kDram0).size()} + store_.wants(kNvme0).size() +
         spills_in_flight_ + (nvme_ == nullptr ? 0 : nvme_->writes_in_flight());
}

void Mover::cancel_all() noexcept {
  const std::vector<FetchState*> active = active_fetches_;  // the list changes as they end
  for (FetchState* state : active) cancel_fetch(*state);
}

void Mover::cancel_into(std::uint32_t pool) noexcept {
  const std::vector<FetchState*> active = active_fetches_;
  for (FetchState* state : active) {
    if (state->to_pool && state->pool == pool) cancel_fetch(*state);
  }
}

std::uint64_t Mover::drop(PlaceId place) {
  // Their index entries go too, or a restart would bring them back.
  return store_.drop_all(place, place == kNvme0 ? &to_forget_ : nullptr);
}

std::span<BlockDevice* const> Mover::drives() const noexcept {
  if (nvme_ == nullptr || tiers_.nvme == nullptr) return {};
  return nvme_->devices();
}

// ---- Batches: what ends when a point has passed.

Batch& Mover::new_batch(StreamPoint point) {
  if (free_batches_.empty())
    free_batches_.push_back(batches_.emplace_back(std::make_unique<Batch>()).get());
  Batch& batch = *free_batches_.back();
  free_batches_.pop_back();
  batch.point = point;
  batch.is_recorded = true;
  batch.movements.clear();
  batch.free_slots.clear();
  batch.store = nullptr;
  batch.pool = kNoSlot;
  return batch;
}

void Mover::start_batch(Batch& batch) {
  const PointState state = state_of(batch);
  if (state != PointState::pending) {
    end_batch(batch, state == PointState::passed);
    return;
  }
  active_batches_.push_back(&batch);
  batches_in_flight_.store(static_cast<std::uint32_t>(active_batches_.size()),
                           std::memory_order_relaxed);
}

bool Mover::end_batches() {
  const std::size_t before = active_batches_.size();
  std::erase_if(active_batches_, [this](Batch* batch) {
    const PointState state = state_of(*batch);
    if (state == PointState::pending) return false;
    end_batch(*batch, state == PointState::passed);
    return true;
  });
  batches_in_flight_.store(static_cast<std::uint32_t>(active_batches_.size()),
                           std::memory_order_relaxed);
  return active_batches_.size() != before;
}

// Copies that are enqueued cannot be taken back: where the device has no room for the point behind
// them, they keep what they hold until it has.
PointState Mover::state_of(Batch& batch) {
  if (!batch.is_recorded) {
    const Result<StreamPoint> point = device_.record(batch.point.stream);
    if (!point)
      return point.error().code == Code::retry_later ? PointState::pending : PointState::failed;
    batch.point = *point;
    batch.is_recorded = true;
  }
  return device_.query(batch.point);
}

void Mover::end_batch(Batch& batch, bool good) {
  for (const Movement& movement : batch.movements) {
    if (movement.to == kDram0 && movement.from == kHbm0) --spills_in_flight_;
    if (movement.to != kNowhere && good) store_.finish_landing(movement.block, movement.to);
    if (movement.to != kNowhere && !good) store_.fail_landing(movement.block, movement.to);
    if (movement.from != kNowhere) store_.unpin(movement.block, movement.from);
  }
  for (const std::uint32_t slot : batch.free_slots) store_.pool(kHbm0).release(slot);
  if (batch.pool != kNoSlot) --pools_[batch.pool].operations;
  if (batch.store != nullptr) {
    if (!good) {
      batch.store->reason = Code::io_error;
      batch.store->complete = false;
      batch.store->stored = 0;
    }
    end_store(*batch.store);
  }
  free_batches_.push_back(&batch);
}

}  // namespace terrace::internal
