// Reads the header of every record in a data file, for when no index says what is there.
//
// Called by: NvmeStore::recover.
// Thread rule: one thread at a time; blocks, and tells its progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "index/record.hpp"
#include "io/host_memory.hpp"
#include "terrace/io.hpp"

namespace terrace::internal {

class NvmeScan {
 public:
  using OnHeader = std::function<void(std::uint32_t slot, std::span<const std::byte> header)>;
  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

  // Reads into `buffers`, or into some of its own where they have no room. Where run() fails, scan
  // and buffers must outlive `device`, which may still write to them. REQUIRES: device and format
  // outlive the scan.
  NvmeScan(BlockDevice& device, const RecordFormat& format, std::uint32_t slot_count,
           std::span<std::byte> buffers, std::uint32_t queue_depth_max);

  // Calls `on_header` for each slot that can be read, in no particular order, whatever its bytes.
  // Returns: success; io_error where the device answers nothing for half a minute.
  Result<void> run(const OnHeader& on_header, const Progress& progress);

  std::uint32_t unreadable_slots() const noexcept { return unreadable_slots_; }

 private:
  struct Lane {  // one request at a time
    std::byte* data = nullptr;
    std::uint32_t first_slot = 0;
    std::uint32_t slots = 0;
  };

  void submit();
  std::size_t reap(const OnHeader& on_header);
  void wait() const;

  BlockDevice& device_;
  const RecordFormat& format_;
  const std::uint32_t slot_count_;
  std::uint32_t slots_per_read_;
  std::uint32_t bytes_per_read_;
  HostMemory own_buffers_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> idle_lanes_;
  std::uint32_t next_slot_ = 0;
  std::uint32_t done_slots_ = 0;
  std::uint32_t unreadable_slots_ = 0;
};

}  // namespace terrace::internal
