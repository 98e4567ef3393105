// Up: NVMe to DRAM to HBM, or to the slots of an engine's pool, in the order of the prefix.
//
// A fetch settles its blocks from the front. Runs of blocks whose bytes are in host memory are
// copied whole as they become ready; the last run goes layer by layer, with a point after each
// group of layers, so that attention on the first layers starts while the last ones are still on
// the bus. Since a stream is ordered, those points cover the earlier runs too.
#include <algorithm>

#include "base/assert.hpp"
#include "move/mover.hpp"

namespace terrace::internal {
namespace {

// A run shorter than this waits for more of its kind, unless it is the last: fewer, longer batches.
constexpr std::uint32_t kRunBlocksMin = 16;
// Whose memory is asked for before their turn comes.
constexpr std::uint32_t kReadAhead = 32;

constexpr std::uint8_t bit(PlaceId place) {
  return static_cast<std::uint8_t>(1u << place);
}
constexpr std::uint8_t kEverywhere = 0xff;

}  // namespace

FetchState* Mover::new_fetch() noexcept {
  if (free_fetches_.empty()) return nullptr;
  FetchState* state = free_fetches_.back();
  free_fetches_.pop_back();
  state->done.store(false, std::memory_order_relaxed);
  state->active = true;
  state->usable = state->read_at = state->settled = state->run_end = state->group_at = 0;
  state->copied = state->to_pool = state->cancelled = state->orphaned = false;
  state->deadline_ns = 0;
  state->points.clear();
  state->pool_slots.clear();
  return state;
}

void Mover::start_fetch(FetchState& state) {
  const std::size_t count = state.blocks.size();
  state.usable = static_cast<std::uint32_t>(count);
  state.lands.assign(count, 0);
  state.results.assign(count, BlockResult{});
  for (std::size_t i = 0; i < count; ++i) state.results[i].found_at = state.found_at[i];
  state.read_at_since = looks();
  active_fetches_.push_back(&state);
  if (!state.to_pool) {
    // HBM is taken up front and in order, so that two fetches never wait for each other's slots.
    for (std::uint32_t i = 0; i < state.usable; ++i) {
      const BlockId id = state.blocks[i];
      if ((state.held[i] & bit(kHbm0)) != 0) continue;
      if (store_.state(id, kHbm0) == BlockState::absent) {
        if (!store_.begin_landing(id, kHbm0, Loss::allowed)) {
          truncate(state, i, Code::no_space);
          break;
        }
        state.lands[i] = 1;
      } else {
        store_.pin(id, kHbm0);
      }
      state.held[i] |= bit(kHbm0);
    }
  } else {
    ++pools_[state.pool].operations;
  }
  advance_fetch(state);
}

bool Mover::advance_fetch(FetchState& state) {
  if (state.run_end == 0) {
    if (state.cancelled) truncate(state, state.settled, Code::cancelled);
    if (state.deadline_ns != 0 && store_.now().count() >= state.deadline_ns) {
      truncate(state, state.settled, Code::deadline_exceeded);
    }
    issue_reads(state);
    if (waits_in_vain(state)) truncate(state, state.read_at, Code::io_error);
    if (!choose_run(state)) return false;
  }
  const bool last = state.run_end == state.usable;
  if (!enqueue_run(state, last)) return false;
  if (!last) return true;
  end_fetch(state);
  if (state.orphaned) recycle(state);
  return true;
}

// The next run of blocks to copy: all that are ready, if they are the last, or many, or hold what
// the next read needs. Returns: false where it is better, or necessary, to wait.
bool Mover::choose_run(FetchState& state) {
  std::uint32_t end = state.settled;
  while (end < state.usable && is_ready(state, end)) ++end;
  if (end < state.usable && is_lost(state, end)) truncate(state, end, Code::io_error);
  const bool next_is_coming = end < state.read_at;
  const bool worth_it =
      end > state.settled && (end - state.settled >= kRunBlocksMin || !next_is_coming);
  if (end < state.usable && !worth_it) return false;
  state.run_end = end;
  return true;
}

// ---- Reads.

void Mover::issue_reads(FetchState& state) {
  run_.clear();
  run_slots_.clear();
  const std::uint32_t before = state.read_at;
  while (state.read_at < state.usable && plan_read(state, state.read_at)) ++state.read_at;
  if (state.read_at > before) state.read_at_since = looks();
  std::ranges::sort(run_slots_);  // as in a spill: a run is one piece of memory then
  for (std::size_t i = 0; i < run_.size(); ++i) {
    store_.attach(run_[i], kDram0, run_slots_[i]);
    store_.pin(run_[i], kDram0);  // this operation's, beside the transfer's
    store_.pin(run_[i], kNvme0);
    nvme_->start(Transfer::Step::reading, run_[i]);
  }
  if (run_.empty()) return;
  // What comes next, when a read has ended.
  const std::size_t ahead = std::min<std::size_t>(state.read_at + kReadAhead, state.usable);
  for (std::size_t i = state.read_at; i < ahead; ++i) store_.table().prefetch_move(state.blocks[i]);
}

// Returns: false where the read has to wait for credits.
bool Mover::plan_read(FetchState& state, std::uint32_t index) {
  const BlockId id = state.blocks[index];
  const bool here =
      state.to_pool ? store_.state(id, kHbm0) == BlockState::resident : state.lands[index] == 0;
  if (here) return true;  // or another operation brings it
  const BlockState in_dram = store_.state(id, kDram0);
  if (in_dram == BlockState::quarantined) return true;  // is_lost() sees it
  if (in_dram != BlockState::absent) {
    // Resident, or read for another fetch: one flight serves both.
    if ((state.held[index] & bit(kDram0)) == 0) store_.pin(id, kDram0);
    state.held[index] |= bit(kDram0);
    return true;
  }
  if (store_.state(id, kNvme0) != BlockState::resident) return true;
  if (run_.size() >= nvme_->free()) return false;
  const std::uint32_t slot = store_.acquire_slot(kDram0, Loss::allowed);
  if (slot == kNoSlot) return false;
  state.held[index] |= bit(kDram0);
  run_.push_back(id);
  run_slots_.push_back(slot);
  return true;
}

bool Mover::is_ready(const FetchState& state, std::uint32_t index) const noexcept {
  const BlockId id = state.blocks[index];
  if (!state.to_pool && state.lands[index] == 0)
    return store_.state(id, kHbm0) == BlockState::resident;
  const bool in_dram =
      (state.held[index] & bit(kDram0)) != 0 && store_.state(id, kDram0) == BlockState::resident;
  const bool in_hbm = state.to_pool && (state.held[index] & bit(kHbm0)) != 0 &&
                      store_.state(id, kHbm0) == BlockState::resident;
  return in_dram || in_hbm;
}

// A read cannot start for lack of room, and room is held by requests that a drive does not answer.
bool Mover::waits_in_vain(const FetchState& state) const noexcept {
  return nvme_ != nullptr && nvme_->late() > 0 && state.read_at < state.usable &&
         nvme_->is_late(state.read_at_since);
}

// Nothing is on its way that could still make it ready.
bool Mover::is_lost(const FetchState& state, std::uint32_t index) const noexcept {
  const BlockId id = state.blocks[index];
  const BlockState in_hbm = store_.state(id, kHbm0);
  if (!state.to_pool && state.lands[index] == 0)
    return in_hbm != BlockState::resident && in_hbm != BlockState::landing;
  if (state.to_pool && in_hbm == BlockState::landing) return false;
  const BlockState in_dram = store_.state(id, kDram0);
  const BlockState on_nvme = store_.state(id, kNvme0);
  if (in_dram == BlockState::quarantined) return true;
  // A drive that does not answer: the copy it reads from was condemned.
  if (in_dram == BlockState::landing && on_nvme == BlockState::quarantined) return true;
  return in_dram == BlockState::absent && on_nvme != BlockState::resident;
}

// ---- Copies.

// Enqueues the copies of blocks [settled, run_end). Once begun, a run is finished: its slots have
// copies in flight. Returns: false where the device's queue is full: the next tick goes on.
bool Mover::enqueue_run(FetchState& state, bool last) {
  const std::uint32_t groups = last ? group_count_ : 1;
  for (; state.group_at < groups; ++state.group_at) {
    const Result<StreamPoint> point = enqueue_group(state, !last);
    if (!point && point.error().code == Code::retry_later) return false;
    if (!point) {
      // The device is broken, and with it every point of its streams.
      settle(state, StreamPoint{}, false);
      break;
    }
    state.copied = false;
    if (last) state.points.push_back(*point);
    if (state.group_at + 1 == groups) settle(state, *point, true);
  }
  state.group_at = 0;
  state.run_end = 0;
  return true;
}

// Copies and point of one group of layers of the run, or of all layers.
Result<StreamPoint> Mover::enqueue_group(FetchState& state, bool whole) {
  copies_.clear();
  for (std::uint32_t i = state.settled; i < state.run_end; ++i)
    add_copies(state, i, state.group_at, whole);
  if (copies_.empty() && state.settled == 0) return StreamPoint{};  // everything was in HBM already
  if (!state.copied && !copies_.empty()) {
    if (Result<void> copied = device_.copy(load_stream_, copies_); !copied)
      return unexpected(copied.error());
  }
  state.copied = true;
  return device_.record(load_stream_);
}

void Mover::add_copies(const FetchState& state, std::uint32_t index, std::uint32_t group,
                       bool whole) {
  if (!state.to_pool && state.lands[index] == 0) return;
  const Block& block = store_.table()[state.blocks[index]];
  const std::byte* from = state.to_pool && block.at[kHbm0].state == BlockState::resident
                              ? tiers_.hbm.data(block.at[kHbm0].slot)
                              : tiers_.dram.payload(block.at[kDram0].slot);
  const std::uint32_t layers = tiers_.layout.layer_count();
  const std::uint32_t first = whole ? 0 : group * layers_per_group_;
  const std::uint32_t last = whole ? layers : std::min(layers, first + layers_per_group_);
  if (state.to_pool) {
    add_pool_copies(state, index, from, first, last);
    return;
  }
  const Slice tail = tiers_.layout.layer_slice(last - 1);
  const std::uint64_t offset = tiers_.layout.layer_slice(first).offset;
  copies_.push_back({tiers_.hbm.data(block.at[kHbm0].slot) + offset, from + offset,
                     tail.offset + tail.bytes - offset});
}

void Mover::add_pool_copies(const FetchState& state, std::uint32_t index, const std::byte* from,
                            std::uint32_t first_layer, std::uint32_t last_layer) {
  const Pool& pool = pools_[state.pool];
  for (std::uint32_t layer = first_layer; layer < last_layer; ++layer) {
    for (std::uint32_t component = 0; component < 2; ++component) {
      const PoolRegion& region = pool.regions[layer * 2 + component];
      copies_.push_back({region.base + state.pool_slots[index] * region.stride_bytes,
                         from + tiers_.layout.component_slice(layer, component).offset,
                         region.bytes});
    }
  }
}

// The copies of the run are enqueued before `point`: from here on the batch keeps source and
// destination.
void Mover::settle(FetchState& state, StreamPoint point, bool good) {
  Batch& batch = new_batch(point);
  const std::uint32_t first = state.settled;
  for (std::uint32_t i = first; i < state.run_end; ++i) {
    if (!state.to_pool && state.lands[i] == 0) continue;
    const BlockId id = state.blocks[i];
    const PlaceId from =
        state.to_pool && store_.state(id, kHbm0) == BlockState::resident ? kHbm0 : kDram0;
    store_.pin(id, from);
    if (!state.to_pool)
      store_.pin(id, kHbm0);  // the landing's own pin; the operation's goes to the lease
    batch.movements.push_back({id, state.to_pool ? kNowhere : kHbm0, from});
    state.lands[i] = 0;
    release_block(
        state, i,
        static_cast<std::uint8_t>(state.to_pool ? kEverywhere : kEverywhere & ~bit(kHbm0)));
    store_.stats().places[from].bytes_read += tiers_.layout.block_bytes();
    if (!state.to_pool) store_.stats().places[kHbm0].bytes_written += tiers_.layout.block_bytes();
  }
  if (state.to_pool) {
    batch.pool = state.pool;
    ++pools_[state.pool].operations;
  }
  state.settled = state.run_end;
  if (good) {
    start_batch(batch);
    return;
  }
  end_batch(batch, false);
  state.settled = first;
  truncate(state, first, Code::io_error);
}

// ---- Ends.

void Mover::truncate(FetchState& state, std::uint32_t usable, Code reason) noexcept {
  for (std::uint32_t i = usable; i < state.usable; ++i) {
    state.results[i].reason = reason;
    release_block(state, i, kEverywhere);
  }
  state.usable = usable;
  state.read_at = std::min(state.read_at, usable);
}

// Gives back this operation's pins of one block in `places`.
void Mover::release_block(FetchState& state, std::uint32_t index, std::uint8_t places) noexcept {
  const BlockId id = state.blocks[index];
  const std::uint8_t held = state.held[index] & places;
  state.held[index] = static_cast<std::uint8_t>(state.held[index] & ~places);
  // The highest place last: the block may be erased with its last copy, and then must not be looked
  // at again.
  for (PlaceId place = kPlaceCount; place-- > 0;) {
    if ((held & bit(place)) == 0) continue;
    if (place == kHbm0 && state.lands[index] != 0) {
      state.lands[index] = 0;
      store_.fail_landing(id, kHbm0);
    } else {
      store_.unpin(id, place);
    }
  }
}

void Mover::end_fetch(FetchState& state) noexcept {
  state.points.resize(group_count_, state.points.empty() ? StreamPoint{} : state.points.back());
  store_.touch_chain(std::span(state.blocks).first(state.usable));
  for (std::uint32_t i = 0; i < state.usable; ++i) {
    state.results[i].usable = true;
    release_block(
        state, i,
        static_cast<std::uint8_t>(state.to_pool ? kEverywhere : kEverywhere & ~bit(kHbm0)));
  }
  account(state);
  if (state.to_pool) --pools_[state.pool].operations;
  std::erase(active_fetches_, &state);
  state.active = false;
  state.done.store(true, std::memory_order_release);
}

// One request, counted once: by the place where match() found each block that could be used.
void Mover::account(const FetchState& state) noexcept {
  const std::uint32_t block_tokens = tiers_.layout.block_tokens;
  Stats& stats = store_.stats();
  const std::uint64_t matchable =
      state.prompt_tokens == 0 ? 0 : (state.prompt_tokens - 1) / block_tokens;
  ++stats.queries;
  stats.query_tokens += state.prompt_tokens;
  stats.query_blocks += matchable;
  for (std::uint32_t i = 0; i < state.usable; ++i) {
    PlaceStats& place = stats.places[state.found_at[i]];
    ++place.hit_blocks;
    place.hit_tokens += block_tokens;
  }
  stats.miss_tokens += state.prompt_tokens - std::uint64_t{state.usable} * block_tokens;
  stats.miss_blocks += matchable - state.usable;
  stats.failed_blocks += state.blocks.size() - state.usable;
}

void Mover::cancel_fetch(FetchState& state) noexcept {
  state.cancelled = true;
  if (state.active) advance_fetch(state);
}

void Mover::abandon(FetchState& state) noexcept {
  state.orphaned = true;
  if (state.active) {
    cancel_fetch(state);  // recycled when it ends, perhaps now
  } else {
    recycle(state);
  }
}

void Mover::recycle(FetchState& state) noexcept {
  for (std::uint32_t i = 0; i < state.usable; ++i) release_block(state, i, kEverywhere);
  free_fetches_.push_back(&state);
}

}  // namespace terrace::internal
