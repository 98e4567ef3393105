// The drives and indexes of all directories, by path: what is on them outlives a cache, and what a
// crash leaves of it is decided here.
//
// Directories are real, with their lock and manifest. In place of the data file a simulated drive
// leaves a small one, so that the directory knows that there is data; where that is gone at open,
// the content is gone, too.
// Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "sim/sim_disk.hpp"
#include "sim/sim_index.hpp"

namespace terrace::sim {

enum class Crash : std::uint8_t { kill, power_cut };

class Hardware {
 public:
  explicit Hardware(World& world) : world_(world), random_(world.config().seed, "hardware") {}

  // As Options::block_device and internal::CoreSeams::slot_index want them.
  // Returns: the device; io_error, as where the file system is too small.
  Result<std::unique_ptr<BlockDevice>> open_drive(const BlockDeviceOptions& options);
  std::unique_ptr<internal::SlotIndex> open_index(const std::string& path);

  // From now on, what is open writes to nowhere, and the next one to open finds what was left.
  void crash(Crash how);
  Crash last_crash() const { return last_crash_; }
  // What the last crash took of the indexes' queues.
  std::uint64_t updates_lost() const { return updates_lost_; }
  // What was completed before that, on all drives and in all indexes in use, was durable when the
  // crash came.
  Clock::Time durable_until() const { return durable_until_; }
  std::uint64_t runs() const;
  // By all drives, ever.
  std::uint64_t bytes_written() const;
  // Damage that happens to data at rest, under a living cache too.
  void wear();

 private:
  World& world_;
  Random random_;
  std::map<std::string, Drive> drives_;         // by directory of the cache
  std::map<std::string, IndexFolder> indexes_;  // likewise
  IndexFolder grave_;                           // of a process that is dead and does not know it
  Crash last_crash_ = Crash::kill;
  std::uint64_t updates_lost_ = 0;
  Clock::Time durable_until_{0};
};

}  // namespace terrace::sim
