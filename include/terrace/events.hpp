// What happens to blocks, as it happens: places, states, and the event ring.
//
// Thread rule: plain values.
#pragma once

#include <cstdint>

#include "terrace/key.hpp"

namespace terrace {

// Where a copy of a block may be. An id, not a ladder: further devices and stores get further ids.
using PlaceId = std::uint8_t;
inline constexpr PlaceId kHbm0 = 0;
inline constexpr PlaceId kDram0 = 1;
inline constexpr PlaceId kNvme0 = 2;
inline constexpr PlaceId kPlaceCount = 3;
const char* to_string(PlaceId place) noexcept;  // "hbm", "dram", "nvme"

// The state of one block in one place. Transitions: lib/move/block_state.hpp.
enum class BlockState : std::uint8_t {
  absent,       // no copy here
  landing,      // a slot is taken and bytes are on their way into it
  resident,     // a complete copy, findable
  quarantined,  // a copy that failed, held by leases that were given out before; not findable
};
const char* to_string(BlockState state) noexcept;

// One change of state. Sequence numbers have no gaps: a reader that finds one was overtaken by the
// ring, and takes a snapshot. The incarnation tells one life of a cache from the next.
struct Event {
  std::uint64_t sequence = 0;
  std::uint64_t incarnation = 0;
  std::int64_t time_ns = 0;
  PlaceId place = 0;
  BlockState from = BlockState::absent;
  BlockState to = BlockState::absent;
  std::uint32_t depth = 0;  // index of the block in its chain
  BlockKey key;
  BlockKey parent;
};

}  // namespace terrace
