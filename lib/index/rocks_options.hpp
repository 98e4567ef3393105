// How the slot index runs RocksDB: small, silent, bounded on disk and in memory.
//
// Called by: rocks_slot_index.cpp, rocks_index_reader.cpp.
// Thread rule: pure functions.
#pragma once

#include <rocksdb/options.h>

#include <cstdint>

namespace terrace::internal {

// What N slots cost on disk. `live` is one entry for each slot; it may stand there half as often again.
// Level 0 is at most 8 tables, then writers wait; a table is two write buffers where a flush came late,
// each a batch over its size: 20 write buffers. The level below holds its 4 and what level 0 gave it last:
// 24, and two more buffers are on their way. RocksDB starts a compaction only where all its inputs fit
// once more beside all tables: another 44. Where it never fits, writers wait for ever; so tables_max must
// leave room for the worst one. Rewriting every slot in random order, compactions as late as can be:
//      slots x entry           1,000 x 400   4,000 x 400   50,000 x 616   20,000 x 5,000
//      live, MiB                   0.4           1.6           30.3            95.7
//      tables and inputs, MiB      2.6           6.1           89.3           283.6
//      tables_max, MiB             6.2           8.0          130.8           412.9
// RocksDB itself keeps tables_max: it rather stops writing, which is then counted as failures.
struct RocksBounds {
  std::uint64_t write_buffer_bytes;
  std::uint64_t batch_bytes;  // of one write
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
