// The bookkeeping behind every movement: which blocks there are, in which slots, in which state,
// held by whom, and who makes room. It moves no bytes; the mover does, between begin_landing() and
// finish_landing().
//
// A pin keeps one copy where it is. Whoever begins a landing, and whoever reads a copy, holds a pin
// until it is done.
// Thread rule: one caller at a time (the cache's lock is held).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/event_ring.hpp"
#include "index/block_table.hpp"
#include "memory/id_list.hpp"
#include "memory/slot_pool.hpp"
#include "terrace/io.hpp"
#include "terrace/policy.hpp"
#include "terrace/stats.hpp"

namespace terrace::internal {

// May a copy leave that has no other below it?
enum class Loss : std::uint8_t { refused, allowed };

class BlockStore {
 public:
  struct Sizes {
    std::array<std::uint32_t, kPlaceCount> slots{};  // 0: there is no such place
    std::vector<std::uint32_t> nvme_drives;  // the slots of kNvme0 by drive; empty: one drive
    std::uint32_t block_tokens = 0;
  };
  static std::uint32_t table_capacity(const Sizes& sizes) noexcept;

  BlockStore(const Sizes& sizes, std::unique_ptr<EvictionPolicy> policy, const Clock& clock,
             std::uint64_t incarnation);

  // ---- Blocks and their copies.
  BlockTable& table() noexcept { return table_; }
  const BlockTable& table() const noexcept { return table_; }
  Residency& at(BlockId id, PlaceId place) noexcept { return table_[id].at[place]; }
  BlockState state(BlockId id, PlaceId place) const noexcept { return table_[id].at[place].state; }
  bool has(PlaceId place) const noexcept { return pools_[place].capacity() > 0; }
  SlotPool& pool(PlaceId place) noexcept { return pools_[place]; }

  // Inserts a block that find() did not find. `parent` may be kNoBlock. Returns: the block, held by
  // nobody: give it a copy or drop_if_gone() it; kNoBlock where the table is full.
  BlockId insert(const RecordMeta& meta, BlockId parent) noexcept;
  void drop_if_gone(BlockId id) noexcept;  // erases a block without copies

  // ---- Pins.
  void pin(BlockId id, PlaceId place) noexcept;
  void unpin(BlockId id, PlaceId place) noexcept;

  // ---- Slots and states.
  // Returns: a free slot of `place`, after eviction where needed; kNoSlot. `range` is preferred.
  std::uint32_t acquire_slot(PlaceId place, Loss loss, std::uint32_t range = 0) noexcept;
  // absent -> landing in a fresh slot, pinned by the caller. Returns: false where there is no slot.
  bool begin_landing(BlockId id, PlaceId place, Loss loss) noexcept;
  // As above, in a slot that the caller has already.
  void attach(BlockId id, PlaceId place, std::uint32_t slot) noexcept;
  // landing -> resident; the caller's pin ends.
  void finish_landing(BlockId id, PlaceId place) noexcept;
  // landing -> absent, or quarantined while others hold it; the caller's pin ends.
  void fail_landing(BlockId id, PlaceId place) noexcept;
  // resident -> absent. REQUIRES: no pins.
  void evict(BlockId id, PlaceId place) noexcept;
  // resident -> absent for a copy whose bytes proved wrong; its slot is never used again. Pins of
  // readers may remain: the copy is then quarantined until they end.
  void condemn(BlockId id, PlaceId place) noexcept;
  // As above for every copy in a range of `place`, of which nothing is given out from here on.
  // Takes time for each copy there is in `place`. Returns: how many copies were lost.
  std::uint32_t condemn_range(PlaceId place, std::uint32_t range) noexcept;
  // absent -> resident in a slot known from an earlier life. REQUIRES: the pool has adopted the
  // slot.
  void recover(BlockId id, PlaceId place, std::uint32_t slot) noexcept;

  // A request has used this chain: its copies become the warmest, the deepest being the least warm
  // of them.
  void touch_chain(std::span<const BlockId> chain) noexcept;
  // Drops every unpinned copy in `place`, and lists their slots where `slots` is given. Returns:
  // how many.
  std::uint64_t drop_all(PlaceId place, std::vector<std::uint32_t>* slots);

  // ---- Wants: what is to come to `place`, in order: resident in the place above, and absent here.
  const IdList& wants(PlaceId place) const noexcept { return wants_[place]; }
  void unwant(BlockId id, PlaceId place) noexcept;  // if it was wanted

  Clock::Time now() const noexcept { return clock_.now(); }
  Stats& stats() noexcept { return stats_; }
  Stats snapshot() const;
  const EventRing& events() const noexcept { return events_; }

 private:
  void advance(BlockId id, PlaceId place, BlockState to) noexcept;
  void became_resident(BlockId id, PlaceId place) noexcept;
  void want_below(BlockId id) noexcept;
  void unwant_below(BlockId id, PlaceId place) noexcept;
  void give_back_slot(BlockId id, PlaceId place) noexcept;
  bool has_copy_below(BlockId id, PlaceId place) const noexcept;
  bool is_elsewhere(BlockId id, PlaceId place) const noexcept;  // it is resident in another place
  BlockId choose_victim(PlaceId place, Loss loss) const noexcept;
  void look_ahead(PlaceId place) noexcept;
  void count_departure(BlockId id, PlaceId place) noexcept;

  BlockTable table_;
  std::array<SlotPool, kPlaceCount> pools_;
  std::unique_ptr<EvictionPolicy> policy_;
  const Clock& clock_;
  EventRing events_;
  std::array<IdList, kPlaceCount> wants_;
  std::array<std::uint32_t, kPlaceCount> evictions_{};  // modulo 2^32
  Stats stats_;
};

}  // namespace terrace::internal
