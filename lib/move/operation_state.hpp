// What the mover knows of operations and movements in progress. All of it is recycled,
// so that a steady state allocates nothing.
// Thread rule: guarded by the cache's lock, but for `done`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "index/block_table.hpp"
#include "terrace/cache.hpp"

namespace terrace::internal {

inline constexpr PlaceId kNowhere = 0xff;

// An engine's pool, by layer and component.
struct Pool {
  std::uint32_t slot_count = 0;
  std::vector<PoolRegion> regions;  // [layer * 2 + component]; empty: unregistered
  std::uint32_t operations = 0;     // in progress
};

struct FetchState {
  std::atomic<bool> done{false};
  bool active = false;  // submitted and not done
  std::uint64_t user_data = 0;
  std::int64_t deadline_ns = 0;  // 0: none
  std::uint32_t prompt_tokens = 0;
  Prefix prefix;

  // One entry a matched block.
  std::vector<BlockId> blocks;
  std::vector<PlaceId> found_at;
  std::vector<std::uint8_t> held;   // places where this operation has a pin: bit 1 << place
  std::vector<std::uint8_t> lands;  // its HBM copy is this operation's to fill
  std::vector<BlockResult> results;
  std::vector<std::uint32_t> pool_slots;  // registered pool only

  std::uint32_t usable = 0;         // blocks that can still be had; shrinks from the tail
  std::uint32_t read_at = 0;        // blocks before it need no NVMe read any more
  std::uint32_t read_at_since = 0;  // [lock] when it moved last, in looks (NvmeTransfers)
  std::uint32_t settled = 0;        // blocks before it are resident, or their copies are enqueued
  std::uint32_t run_end = 0;        // end of the run whose copies are being enqueued; 0: none
  std::uint32_t group_at = 0;       // layer group of that run that is enqueued next
  bool copied = false;              // something was enqueued since the last point
  bool cancelled = false;
  bool orphaned = false;            // its FetchOp is gone
  std::vector<StreamPoint> points;  // one a layer group, once done
  std::uint32_t pool = 0;
  bool to_pool = false;
};

struct StoreState {
  std::atomic<bool> done{false};
  bool active = false;
  bool orphaned = false;  // its StoreOp is gone
  std::uint64_t user_data = 0;
  std::uint32_t stored = 0;
  std::uint32_t pool = 0;
  Code reason = Code::cancelled;
  bool complete = false;  // everything given was stored
};

// One copy on a stream: fills `to` (or kNowhere: an engine's slot) and keeps `from` where it is
// until it is done.
struct Movement {
  BlockId block = kNoBlock;
  PlaceId to = kNowhere;
  PlaceId from = kNowhere;
};

// Everything that ends when one point has passed.
struct Batch {
  StreamPoint point;
  bool is_recorded = true;  // false: `point` is still to be recorded on its stream
  std::vector<Movement> movements;
  std::vector<std::uint32_t> free_slots;  // of the HBM arena, given back then
  StoreState* store = nullptr;
  std::uint32_t pool = kNoSlot;  // whose operation count it holds
};

}  // namespace terrace::internal
