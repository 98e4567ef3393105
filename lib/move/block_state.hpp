// The life of a block in one place. Every change of state goes through advance(): one table says
// what is legal.
//
//              slot taken              all bytes there, verified
//   absent -----------------> landing --------------------------> resident
//     ^                          |                                |     |
//     |                          | failed           proved wrong  |     | evicted or dropped:
//     |   last holder ended      v                                |     | nobody holds it
//     |'------------------- quarantined <-------------------------'     |
//     '-----------------------------------------------------------------'
//
// Recovery enters at resident: the copy is from an earlier life, and is verified when it is read.
#pragma once

#include "base/assert.hpp"
#include "terrace/events.hpp"

namespace terrace::internal {

constexpr bool is_legal(BlockState from, BlockState to) noexcept {
  switch (from) {
    case BlockState::absent:
      return to == BlockState::landing || to == BlockState::resident;
    case BlockState::landing:
      return to == BlockState::resident || to == BlockState::quarantined;
    case BlockState::resident:
      return to == BlockState::quarantined || to == BlockState::absent;
    case BlockState::quarantined:
      return to == BlockState::absent;
  }
  return false;
}

static_assert(!is_legal(BlockState::resident, BlockState::landing),
              "published bytes are never overwritten");
static_assert(!is_legal(BlockState::quarantined, BlockState::resident),
              "failed bytes are never published");

}  // namespace terrace::internal
