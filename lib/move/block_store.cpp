#include "move/block_store.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "move/block_state.hpp"

namespace terrace::internal {
namespace {

constexpr std::uint32_t kEventCapacity = 8192;
// How far a victim with a copy below is looked for before one without is taken: keeps the search
// O(1).
constexpr std::uint32_t kVictimSearchMax = 128;

}  // namespace

std::uint32_t BlockStore::table_capacity(const Sizes& sizes) noexcept {
  // Every block in the table has a copy somewhere, but for the one that is being inserted.
  std::uint32_t slots = 1;
  for (const std::uint32_t count : sizes.slots) slots += count;
  return slots;
}

BlockStore::BlockStore(const Sizes& sizes, std::unique_ptr<EvictionPolicy> policy,
                       const Clock& clock, std::uint64_t incarnation)
    : table_(table_capacity(sizes), sizes.block_tokens),
      policy_(std::move(policy)),
      clock_(clock),
      events_(kEventCapacity, incarnation) {
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    pools_[place] = SlotPool(sizes.slots[place]);
    if (place > 0 && sizes.slots[place] > 0) wants_[place] = IdList(table_.capacity());
  }
  if (!sizes.nvme_drives.empty()) pools_[kNvme0] = SlotPool(sizes.nvme_drives);
}

BlockId BlockStore::insert(const RecordMeta& meta, BlockId parent) noexcept {
  return table_.insert(meta, parent);
}

void BlockStore::drop_if_gone(BlockId id) noexcept {
  const auto gone = [](const Residency& copy) {
    return copy.state == BlockState::absent && copy.pins == 0;
  };
  if (std::ranges::all_of(table_[id].at, gone)) table_.erase(id);
}

void BlockStore::pin(BlockId id, PlaceId place) noexcept {
  Residency& copy = at(id, place);
  TERRACE_ASSERT(copy.state != BlockState::absent, id);
  if (copy.pins++ == 0) ++stats_.places[place].pinned_blocks;
}

void BlockStore::unpin(BlockId id, PlaceId place) noexcept {
  Residency& copy = at(id, place);
  TERRACE_ASSERT(copy.pins > 0, id);
  if (--copy.pins > 0) return;
  --stats_.places[place].pinned_blocks;
  if (copy.state != BlockState::quarantined) return;
  give_back_slot(id, place);
  // A copy in HBM took this one for coming, and asked for no spill. A write to NVMe that failed
  // waits for the next reader instead: it would only fail again.
  if (place == kDram0) want_below(id);
  drop_if_gone(id);
}

std::uint32_t BlockStore::acquire_slot(PlaceId place, Loss loss, std::uint32_t range) noexcept {
  const std::uint32_t slot = pools_[place].acquire(range);
  if (slot != kNoSlot) return slot;
  const BlockId victim = choose_victim(place, loss);
  if (victim == kNoBlock) return kNoSlot;
  evict(victim, place);
  look_ahead(place);
  return pools_[place].acquire(range);
}

// Where one leaves, the next ones will soon, and a million blocks are in no cache. In turns, as
// BlockTable::prefetch_turn(); what is read of a block the turn before has asked for.
void BlockStore::look_ahead(PlaceId place) noexcept {
  constexpr std::size_t kTurn = BlockTable::kTurn;
  if (evictions_[place]++ % kTurn != 0) return;
  BlockId id = policy_->coldest(place);
  for (std::size_t ahead = 0; ahead < 3 * kTurn && id != kNoBlock; ++ahead) {
    if (ahead >= 2 * kTurn) {
      table_.prefetch_move(id);
    } else if (ahead >= kTurn) {
      pools_[place].prefetch(at(id, place).slot);
      if (!is_elsewhere(id, place)) table_.prefetch_replace(id);
    }
    id = policy_->next_warmer(place, id);
  }
}

bool BlockStore::begin_landing(BlockId id, PlaceId place, Loss loss) noexcept {
  const std::uint32_t slot = acquire_slot(place, loss);
  if (slot == kNoSlot) return false;
  attach(id, place, slot);
  return true;
}

void BlockStore::attach(BlockId id, PlaceId place, std::uint32_t slot) noexcept {
  TERRACE_ASSERT(pools_[place].is_used(slot), slot);
  // Whoever brings it here, nobody need spill it here any more; where that fails, unpin() asks again.
  unwant(id, place);
  advance(id, place, BlockState::landing);
  at(id, place).slot = slot;
  pin(id, place);
}

void BlockStore::finish_landing(BlockId id, PlaceId place) noexcept {
  advance(id, place, BlockState::resident);
  became_resident(id, place);
  unpin(id, place);
}

void BlockStore::fail_landing(BlockId id, PlaceId place) noexcept {
  TERRACE_ASSERT(state(id, place) == BlockState::landing, id);
  advance(id, place, BlockState::quarantined);
  unpin(id, place);
}

void BlockStore::evict(BlockId id, PlaceId place) noexcept {
  TERRACE_ASSERT(at(id, place).pins == 0, id);
  policy_->removed(place, id);
  unwant_below(id, place);
  count_departure(id, place);
  give_back_slot(id, place);
  drop_if_gone(id);
}

void BlockStore::condemn(BlockId id, PlaceId place) noexcept {
  Residency& copy = at(id, place);
  TERRACE_ASSERT(copy.state == BlockState::resident, id);
  policy_->removed(place, id);
  unwant_below(id, place);
  pools_[place].quarantine(copy.slot);
  copy.slot = kNoSlot;
  advance(id, place, BlockState::quarantined);
  if (copy.pins > 0) return;
  give_back_slot(id, place);
  want_below(id);
  drop_if_gone(id);
}

std::uint32_t BlockStore::condemn_range(PlaceId place, std::uint32_t range) noexcept {
  pools_[place].take_out_of_service(range);
  std::uint32_t count = 0;
  for (BlockId id = policy_->coldest(place); id != kNoBlock;) {
    const BlockId next = policy_->next_warmer(place, id);
    if (pools_[place].range_of(at(id, place).slot) == range) {
      condemn(id, place);
      ++count;
    }
    id = next;
  }
  return count;
}

void BlockStore::recover(BlockId id, PlaceId place, std::uint32_t slot) noexcept {
  TERRACE_ASSERT(pools_[place].is_used(slot), slot);
  at(id, place).slot = slot;
  advance(id, place, BlockState::resident);
  became_resident(id, place);
  ++stats_.recovered_blocks;
}

void BlockStore::touch_chain(std::span<const BlockId> chain) noexcept {
  for (auto id = chain.rbegin(); id != chain.rend(); ++id) {
    if (*id == kNoBlock) continue;
    for (PlaceId place = 0; place < kPlaceCount; ++place) {
      if (state(*id, place) == BlockState::resident) policy_->touched(place, *id);
    }
    want_below(*id);
  }
}

// What was not admitted to the place below, or failed there, is worth another try when it is read.
void BlockStore::want_below(BlockId id) noexcept {
  for (PlaceId place = 1; place < kPlaceCount; ++place) {
    const bool missing = has(place) && state(id, place) == BlockState::absent &&
                         state(id, static_cast<PlaceId>(place - 1)) == BlockState::resident;
    if (!missing || at(id, place).wanted) continue;
    at(id, place).wanted = true;
    wants_[place].push_back(id);
  }
}

void BlockStore::unwant(BlockId id, PlaceId place) noexcept {
  if (!at(id, place).wanted) return;
  at(id, place).wanted = false;
  wants_[place].remove(id);
}

void BlockStore::unwant_below(BlockId id, PlaceId place) noexcept {
  if (place + 1 < kPlaceCount) unwant(id, static_cast<PlaceId>(place + 1));
}

std::uint64_t BlockStore::drop_all(PlaceId place, std::vector<std::uint32_t>* slots) {
  std::uint64_t count = 0;
  for (BlockId id = policy_->coldest(place); id != kNoBlock;) {
    const BlockId next = policy_->next_warmer(place, id);
    if (at(id, place).pins == 0) {
      if (slots != nullptr) slots->push_back(at(id, place).slot);
      evict(id, place);
      ++count;
    }
    id = next;
  }
  return count;
}

Stats BlockStore::snapshot() const {
  Stats stats = stats_;
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    PlaceStats& out = stats.places[place];
    out.capacity_blocks = pools_[place].capacity();
    out.free_blocks = pools_[place].free();
    out.used_blocks = pools_[place].used();
    out.quarantined_blocks = pools_[place].quarantined();
  }
  stats.spill_backlog_blocks = wants_[kDram0].size() + wants_[kNvme0].size();
  return stats;
}

// The only place where a state changes.
void BlockStore::advance(BlockId id, PlaceId place, BlockState to) noexcept {
  Residency& copy = at(id, place);
  TERRACE_ASSERT(is_legal(copy.state, to), id);
  const Block& block = table_[id];
  events_.push(Event{.time_ns = now().count(),
                     .place = place,
                     .from = copy.state,
                     .to = to,
                     .depth = block.depth,
                     .key = block.key,
                     .parent = table_.parent_key(id)});
  // As a whole, not the byte with the state: what reads pins next would wait for it (see EventRing). And
  // before a new slot is written, for which this would wait.
  Residency changed = copy;
  changed.state = to;
  copy = changed;
}

void BlockStore::became_resident(BlockId id, PlaceId place) noexcept {
  const BlockId parent = table_.parent_of(id);
  const bool together = parent != kNoBlock && state(parent, place) == BlockState::resident;
  policy_->inserted(place, id, together ? parent : kNoBlock);
  ++stats_.places[place].stored_blocks;
  want_below(id);
}

void BlockStore::give_back_slot(BlockId id, PlaceId place) noexcept {
  Residency& copy = at(id, place);
  if (copy.slot != kNoSlot) pools_[place].release(copy.slot);
  advance(id, place, BlockState::absent);
  copy.slot = kNoSlot;
}

bool BlockStore::has_copy_below(BlockId id, PlaceId place) const noexcept {
  bool is_lowest = true;
  for (PlaceId below = static_cast<PlaceId>(place + 1); below < kPlaceCount; ++below) {
    if (!has(below)) continue;
    is_lowest = false;
    if (state(id, below) == BlockState::resident) return true;
  }
  return is_lowest;
}

// The coldest copy that nobody holds; one with a copy below, if there is one near the cold end.
BlockId BlockStore::choose_victim(PlaceId place, Loss loss) const noexcept {
  BlockId fallback = kNoBlock;
  std::uint32_t searched = 0;
  for (BlockId id = policy_->coldest(place); id != kNoBlock; id = policy_->next_warmer(place, id)) {
    if (table_[id].at[place].pins > 0) continue;
    if (has_copy_below(id, place)) return id;
    if (fallback == kNoBlock) fallback = id;
    if (++searched >= kVictimSearchMax) break;
  }
  return loss == Loss::allowed ? fallback : kNoBlock;
}

bool BlockStore::is_elsewhere(BlockId id, PlaceId place) const noexcept {
  for (PlaceId other = 0; other < kPlaceCount; ++other) {
    if (other != place && state(id, other) == BlockState::resident) return true;
  }
  return false;
}

void BlockStore::count_departure(BlockId id, PlaceId place) noexcept {
  PlaceStats& stats = stats_.places[place];
  ++(is_elsewhere(id, place) ? stats.evicted_blocks : stats.dropped_blocks);
}

}  // namespace terrace::internal
