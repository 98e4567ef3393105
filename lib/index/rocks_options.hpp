// How the slot index runs RocksDB: small, silent, bounded on disk and in memory.
//
// Called by: rocks_slot_index.cpp, rocks_index_reader.cpp.
// Thread rule: pure functions.
#pragma once

#include <rocksdb/options.h>

#include <cstdint>

namespace terrace::internal {

// What N slots cost on disk. `live` is one entry for each slot. Beside it stand level 0 (at most 8
// tables of a write buffer each, then writers wait), and the outputs of a compaction until its
// inputs are gone: as much again, at worst. Rewriting every slot in random order, 4 to 20 times
// over, peaked at these multiples, logs included:
//      slots x entry   1,000 x 400   5,000 x 400   50,000 x 616   200,000 x 400   20,000 x 5,000
//      live, MiB           0.4           2.0           30.3            80.1            95.7
//      peak, MiB           2.4           8.3           72.2           176.9           262.1
//      bytes_max, MiB      6.7          11.5          146.1           354.3           401.2
// RocksDB itself keeps tables_max: it rather stops writing, which is then counted as failures.
struct RocksBounds {
  std::uint64_t write_buffer_bytes;
  std::uint64_t level_base_bytes;
  std::uint64_t tables_max;
  std::uint64_t bytes_max;
};

RocksBounds rocks_bounds(std::uint32_t slot_count, std::uint32_t entry_bytes) noexcept;

rocksdb::Options rocks_options(const RocksBounds& bounds);
// For looking only: writes no file, and where a log is damaged, opening fails rather than stops
// before the damage; an incomplete end is no damage, kill -9 leaves one.
rocksdb::Options rocks_options_read_only();

}  // namespace terrace::internal
