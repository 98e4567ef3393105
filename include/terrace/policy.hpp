// Which copy leaves when a place is full. Policies see block numbers only: no bytes, no clocks, no
// locks.
//
// The mover reports every change, asks for candidates from the coldest on, and skips what is pinned
// or in flight.
// Thread rule: one caller at a time (the cache's lock is held).
#pragma once

#include <cstdint>
#include <memory>

#include "terrace/events.hpp"

namespace terrace {

class EvictionPolicy {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  virtual ~EvictionPolicy() = default;
  // `block` is below the capacity that the policy was made for; `parent` is the block before it in
  // its chain if that has a copy in `place` too, else kNone: a block is worth nothing without its
  // parent.
  virtual void inserted(PlaceId place, std::uint32_t block, std::uint32_t parent) = 0;
  virtual void touched(PlaceId place, std::uint32_t block) = 0;
  virtual void removed(PlaceId place, std::uint32_t block) = 0;
  // The order of eviction. Returns: a block, or kNone.
  virtual std::uint32_t coldest(PlaceId place) const = 0;
  virtual std::uint32_t next_warmer(PlaceId place, std::uint32_t block) const = 0;
};

// Least recently used. Chains are touched from their tail, so of one prefix the deepest block
// leaves first.
std::unique_ptr<EvictionPolicy> make_lru_policy(std::uint32_t block_capacity);

}  // namespace terrace
