// The numbers that tell which lever to pull. A snapshot: plain values, consistent with each other.
//
// Counters only grow. In tokens and in blocks: queries == sum of hits over places + misses. A
// request counts once, when its fetch ends, in the place where match() found each block; a match
// that is dropped counts nowhere.
#pragma once

#include <array>
#include <cstdint>

#include "terrace/events.hpp"

namespace terrace {

struct PlaceStats {
  std::uint64_t capacity_bytes = 0;  // slots * stride, never above the cap in the options
  std::uint64_t block_stride_bytes = 0;
  std::uint32_t capacity_blocks = 0;
  // At every instant: free + used + quarantined == capacity; pinned blocks are among the used ones.
  std::uint32_t free_blocks = 0;
  std::uint32_t used_blocks = 0;
  std::uint32_t pinned_blocks = 0;
  std::uint32_t quarantined_blocks = 0;

  std::uint64_t hit_blocks = 0;
  std::uint64_t hit_tokens = 0;
  std::uint64_t stored_blocks = 0;   // became resident here
  std::uint64_t evicted_blocks = 0;  // left to make room, a copy stayed in another place
  std::uint64_t dropped_blocks = 0;  // left to make room, or by request, and no copy stayed
  std::uint64_t bytes_read = 0;      // payload bytes read from here by the mover
  std::uint64_t bytes_written = 0;   // payload bytes written here by the mover
  std::uint64_t io_errors = 0;
  std::uint64_t corrupt_blocks = 0;  // records that did not verify; never returned
};

struct Stats {
  std::array<PlaceStats, kPlaceCount> places;

  std::uint64_t queries = 0;  // fetches ended
  std::uint64_t query_tokens = 0;
  std::uint64_t query_blocks = 0;  // matchable blocks: floor((tokens - 1) / block_tokens)
  std::uint64_t miss_tokens = 0;
  std::uint64_t miss_blocks = 0;
  // Found by match(), lost before the fetch ended; counted among the misses.
  std::uint64_t failed_blocks = 0;
  std::uint64_t committed_blocks = 0;      // published
  std::uint64_t duplicate_blocks = 0;      // committed, but another producer was first
  std::uint64_t spill_backlog_blocks = 0;  // gauge: waiting to be written to a lower place
  std::uint64_t nvme_shed_blocks = 0;  // not written for want of budget or drives; may come again
  // Payload, headers and index, as written to the drives; over bytes_written of kNvme0: the write
  // amplification.
  std::uint64_t nvme_bytes_worn = 0;
  // Gauge: reads and writes that a drive has not answered within 30 s. Whoever waited has gone on
  // without, but each keeps its slot of DRAM until the drive does answer.
  std::uint64_t nvme_unanswered_blocks = 0;
  std::uint64_t scrubbed_blocks = 0;
  std::uint64_t index_failures = 0;
  std::uint64_t recovered_blocks = 0;  // found on NVMe at open

  // How the machine is used; a fast path that is not to be had here is said here.
  bool hbm_is_host = true;
  bool dram_pinned = false;
  bool dram_huge_pages = false;
  bool nvme_io_uring = false;
  bool nvme_direct = false;
  bool nvme_registered_buffers = false;
  bool nvme_index = false;  // false: recovery scans the records
  std::uint32_t nvme_drives = 0;
  std::uint32_t nvme_drives_failed = 0;  // out of service since open(), or left out by it
};

}  // namespace terrace
