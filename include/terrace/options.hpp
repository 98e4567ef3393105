// Every size and switch of a cache, with its default. Nothing is read from the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/io.hpp"
#include "terrace/policy.hpp"
#include "terrace/units.hpp"

namespace terrace {

enum class LogLevel : std::uint8_t { debug, info, warning, error };

struct Options {
  // ---- Byte caps: hard at every instant, per cache.
  std::uint64_t hbm_bytes = 0;   // own arena in device memory; 0: none, use registered pools
  std::uint64_t dram_bytes = 0;  // host arena; 0: no DRAM tier
  // Cache directories, one a drive; empty: no NVMe tier. Needs a DRAM tier of at least 8 blocks.
  std::vector<std::string> nvme_paths;
  std::uint64_t nvme_bytes = 0;  // everything in these directories; each gets an equal share
  // Endurance: what is written to NVMe in any 24 hours since open(), of which an hour's share may
  // come at once. What cannot be written stays in DRAM only. 0: no limit.
  std::uint64_t nvme_write_bytes_per_day = 0;

  // ---- How.
  bool huge_pages = true;             // ask for them; the statistics say whether they came
  bool pin_dram = true;               // page-lock the DRAM arena for the device, where possible
  bool prefault = true;               // touch every arena at open(): slow then, steady afterwards
  bool io_uring = true;               // false: plain file I/O
  bool direct_io = true;              // false: through the page cache
  std::uint32_t io_queue_depth = 64;  // requests in flight on each drive; writes get at most half
  // Records are read and verified in the background, so that damage is found before it is asked
  // for. 0: off.
  std::uint64_t nvme_scrub_bytes_per_second = 0;
  // Layers are copied in groups of at least this; gates are per group.
  std::uint32_t layer_copy_bytes = 256 * 1024;
  std::uint32_t fetches_max = 256;  // fetches and stores in progress; one more is told retry_later
  bool driver_thread = false;  // true: a thread of the cache polls; false: poll() is yours to call

  // ---- The world. Empty: the real one.
  std::shared_ptr<CopyEngine> device;  // empty: the host device
  std::shared_ptr<Clock> clock;
  // Opens the data file of an NVMe directory; empty: open_block_device().
  std::function<Result<std::unique_ptr<BlockDevice>>(const BlockDeviceOptions&)> block_device;
  std::function<std::unique_ptr<EvictionPolicy>(std::uint32_t block_capacity)> eviction;

  // ---- Hooks, called from open(), close() and the thread that polls; never while a lock is held.
  // They must not call the cache.
  std::function<void(LogLevel, std::string_view)> log;
  std::function<void(std::string_view step, std::uint64_t done, std::uint64_t total)> progress;
};

}  // namespace terrace
