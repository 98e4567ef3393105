#include "move/mover.hpp"

#include <algorithm>
#include <array>

#include "base/assert.hpp"

namespace terrace::internal {
namespace {

constexpr std::size_t kReapMax = 64;

// Large enough to keep a copy stream busy between two polls, small enough that the engine's pages
// are not all in flight.
constexpr std::uint64_t kSpillBytesInFlight = 64 * MiB;

std::uint64_t tag_of(std::uint32_t index, std::uint32_t generation) {
  return (std::uint64_t{generation} << 32) | index;
}

}  // namespace

Mover::Mover(BlockStore& store, Tiers& tiers, CopyEngine& device, const Clock& clock,
             const Options& options)
    : store_(store), tiers_(tiers), device_(device), clock_(clock) {
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
  if (store.has(kNvme0)) {
    transfers_.resize(options.io_queue_depth);
    for (std::uint32_t i = options.io_queue_depth; i-- > 0;) free_transfers_.push_back(i);
    for (auto* list : {&to_submit_, &submitting_}) list->reserve(options.io_queue_depth);
    reaped_.reserve(options.io_queue_depth);
    indexing_.reserve(options.io_queue_depth);
  }
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

void Mover::resume_sequence(std::uint64_t next) noexcept {
  sequence_ = next;
}

// ---- The pump, in the order in which the cache's poll() calls it.

bool Mover::reap() {
  if (tiers_.nvme == nullptr) return false;
  std::array<IoResult, kReapMax> results;
  const std::size_t count = tiers_.nvme->device().reap(results);
  for (const IoResult& result : std::span(results).first(count)) {
    const auto index = static_cast<std::uint32_t>(result.user_data);
    const Transfer& transfer = transfers_[index];
    TERRACE_ASSERT(tag_of(index, transfer.generation) == result.user_data,
                   index);  // the device checks: I13
    Reaped reaped{index, result.os_error, Verdict::good};
    if (transfer.step == Transfer::Step::reading && result.os_error == 0) {
      const std::uint32_t slot = store_.table()[transfer.block].at[kDram0].slot;
      reaped.verdict =
          tiers_.format.verify(tiers_.dram.record(slot), store_.table().meta(transfer.block));
    }
    reaped_.push_back(reaped);
  }
  return count > 0;
}

bool Mover::tick() {
  bool moved = false;
  for (const Reaped& reaped : reaped_) moved |= retire_transfer(reaped);
  reaped_.clear();
  moved |= index_written();
  moved |= end_batches();
  for (std::size_t i = 0; i < active_fetches_.size();) {
    FetchState& state = *active_fetches_[i];
    moved |= advance_fetch(state);
    if (state.active) ++i;  // an ended one was taken out of the list
  }
  moved |= spill_to_dram();
  moved |= spill_to_nvme();
  submitting_.insert(submitting_.end(), to_submit_.begin(), to_submit_.end());
  to_submit_.clear();
  return moved;
}

bool Mover::submit() {
  if (submitting_.empty()) return false;
  for (const IoRequest& request : std::span(submitting_).subspan(sealed_)) {
    if (request.kind == IoRequest::Kind::read) continue;
    const Transfer& transfer = transfers_[static_cast<std::uint32_t>(request.user_data)];
    RecordMeta meta = store_.table().meta(transfer.block);
    meta.incarnation = store_.events().incarnation();
    meta.sequence = sequence_++;
    tiers_.format.seal({request.data, request.bytes}, meta);
  }
  const std::size_t taken = tiers_.nvme->device().submit(submitting_);
  submitting_.erase(submitting_.begin(), submitting_.begin() + static_cast<std::ptrdiff_t>(taken));
  sealed_ = submitting_.size();
  return taken > 0;
}

bool Mover::idle() const noexcept {
  return active_fetches_.empty() && active_batches_.empty() &&
         free_transfers_.size() == transfers_.size();
}

bool Mover::has_backlog() const noexcept {
  return !store_.wants_dram().empty() || !store_.wants_nvme().empty() || !active_batches_.empty() ||
         writes_in_flight_ > 0 || !to_forget_.empty();
}

std::uint64_t Mover::backlog_blocks() const noexcept {
  return std::uint64_t{store_.wants_dram().size()} + store_.wants_nvme().size() +
         spills_in_flight_ + writes_in_flight_;
}

void Mover::cancel_all() noexcept {
  const std::vector<FetchState*> active = active_fetches_;  // the list changes as they end
  for (FetchState* state : active) cancel_fetch(*state);
}

std::uint64_t Mover::drop(PlaceId place) {
  // Their index entries go too, or a restart would bring them back.
  return store_.drop_all(place, place == kNvme0 ? &to_forget_ : nullptr);
}

int Mover::wait_fd() const noexcept {
  return tiers_.nvme == nullptr ? -1 : tiers_.nvme->device().wait_fd();
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

// ---- Transfers: NVMe reads and writes.

Transfer* Mover::new_transfer(Transfer::Step step, BlockId block) noexcept {
  if (free_transfers_.empty()) return nullptr;
  Transfer& transfer = transfers_[free_transfers_.back()];
  free_transfers_.pop_back();
  transfer.step = step;
  transfer.block = block;
  ++transfer.generation;
  if (step == Transfer::Step::writing) ++writes_in_flight_;
  to_submit_.push_back(request_for(transfer));
  return &transfer;
}

void Mover::end_transfer(Transfer& transfer) noexcept {
  if (transfer.step != Transfer::Step::reading) --writes_in_flight_;
  transfer.step = Transfer::Step::idle;
  transfer.block = kNoBlock;
  free_transfers_.push_back(index_of(transfer));
}

IoRequest Mover::request_for(const Transfer& transfer) const noexcept {
  const Block& block = store_.table()[transfer.block];
  const std::span<std::byte> record = tiers_.dram.record(block.at[kDram0].slot);
  return IoRequest{
      .kind =
          transfer.step == Transfer::Step::reading ? IoRequest::Kind::read : IoRequest::Kind::write,
      .offset = tiers_.nvme->slot_offset(block.at[kNvme0].slot),
      .data = record.data(),
      .bytes = static_cast<std::uint32_t>(record.size()),
      .user_data = tag_of(index_of(transfer), transfer.generation),
  };
}

}  // namespace terrace::internal
