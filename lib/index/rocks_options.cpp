// See rocks_options.hpp.
#include "index/rocks_options.hpp"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/sst_file_manager.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <memory>

#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

// Drops everything: a database that lives in another process's program writes no files of its own
// accord, and RocksDB's log would grow beside the cap.
class NullLogger final : public rocksdb::Logger {
 public:
  NullLogger() : Logger(rocksdb::FATAL_LEVEL) {}
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

}  // namespace

RocksBounds rocks_bounds(std::uint32_t slot_count, std::uint32_t entry_bytes) noexcept {
  const std::uint64_t live =
      std::uint64_t{slot_count} * (entry_bytes + 20);  // key, sequence, block
  RocksBounds bounds;
  bounds.write_buffer_bytes = std::clamp<std::uint64_t>(live / 32, 64 * KiB, 4 * MiB);
  bounds.batch_bytes = bounds.write_buffer_bytes / 4;
  bounds.level_base_bytes = 4 * bounds.write_buffer_bytes;
  bounds.tables_max = live + live / 2 + 90 * bounds.write_buffer_bytes;
  const std::uint64_t logs = 4 * bounds.write_buffer_bytes;
  const std::uint64_t rest = 2 * MiB;  // manifests, options, directory
  bounds.bytes_max = bounds.tables_max + logs + rest;
  return bounds;
}

rocksdb::Options rocks_options(const RocksBounds& bounds) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.info_log = std::make_shared<NullLogger>();
  options.env = rocksdb::Env::Default();
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.manual_wal_flush = false;
  options.write_buffer_size = bounds.write_buffer_bytes;
  options.max_write_buffer_number = 2;
  options.max_total_wal_size = 2 * bounds.write_buffer_bytes;
  options.allow_fallocate = false;  // preallocated tails of logs would count against the cap
  options.max_manifest_file_size = 256 * KiB;
  options.keep_log_file_num = 1;
  options.max_background_jobs = 1;
  options.max_open_files = 64;
  options.stats_dump_period_sec = 0;
  options.statistics = rocksdb::CreateDBStatistics();  // how much it writes wears the drive, too
  options.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
  options.stats_persist_period_sec = 0;
  options.compression = rocksdb::kNoCompression;  // digests and token ids: nothing to gain
  options.level0_file_num_compaction_trigger = 4;
  options.level0_slowdown_writes_trigger = 6;
  options.level0_stop_writes_trigger = 8;
  options.target_file_size_base = bounds.write_buffer_bytes;
  options.target_file_size_multiplier = 2;
  options.max_bytes_for_level_base = bounds.level_base_bytes;
  options.max_compaction_bytes = 8 * bounds.level_base_bytes;
  options.level_compaction_dynamic_level_bytes = true;  // space amplification near 1.1
  options.sst_file_manager.reset(rocksdb::NewSstFileManager(options.env, options.info_log));
  options.sst_file_manager->SetMaxAllowedSpaceUsage(bounds.tables_max);
  rocksdb::BlockBasedTableOptions table;  // no filters: entries are loaded, never looked up
  table.block_size = 16 * KiB;
  table.block_cache = rocksdb::NewLRUCache(1 * MiB);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

rocksdb::Options rocks_options_read_only() {
  rocksdb::Options options;
  options.info_log = std::make_shared<NullLogger>();
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.max_open_files = 64;
  return options;
}

}  // namespace terrace::internal
