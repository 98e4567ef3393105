// One cache directory on NVMe: ownership (lock), manifest, preallocated data file behind a
// BlockDevice, slot index.
//
// It knows where records lie and which are there; it does not choose victims, and does not move
// blocks by itself. Called by: NvmeTier (all of its functions).
// Thread rule: one caller at a time (the pump), open and close included.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "index/record.hpp"
#include "index/slot_index.hpp"
#include "terrace/io.hpp"
#include "tier/nvme_directory.hpp"
#include "tier/nvme_scan.hpp"
#include "tier/record_sink.hpp"

namespace terrace::internal {

struct NvmeStoreOptions {
  std::string path;
  // Hard cap of everything in the directory: data, index, manifest, leftovers.
  std::uint64_t bytes_max = 0;
  std::uint32_t queue_depth_max = 64;
  std::span<std::byte> buffers;  // the DRAM arena: where all request data lies
  bool io_uring = true;
  bool direct = true;
  // Where the data file and the index come from. Empty: open_block_device(), and RocksDB where it is
  // built in and worth its room.
  std::function<Result<std::unique_ptr<BlockDevice>>(const BlockDeviceOptions&)> block_device;
  std::function<std::unique_ptr<SlotIndex>(const std::string& path)> slot_index;
  // Both may be empty.
  std::function<void(const char* step, std::uint64_t done, std::uint64_t total)> progress;
  std::function<void(const std::string& line)> log;
};

// How bytes_max is divided.
struct NvmeSizing {
  std::uint32_t slot_count = 0;
  bool with_index = false;  // false: the index would cost too much of the cap; recovery scans
};
NvmeSizing size_nvme(std::uint64_t bytes_max, const RecordFormat& format) noexcept;

class NvmeStore {
 public:
  // Creates the directory where needed, takes its lock, checks the manifest. A directory of another
  // layout, block size or format version is emptied, and the log says so; records of other
  // identities stay. With another bytes_max, the records that still fit stay.
  // REQUIRES: format was made of layout, with an alignment that is a multiple of 4 KiB.
  // Returns: the store; busy (another process or cache owns it: the log names the owner);
  // invalid_argument (bytes_max has no room for 8 records; not a directory of ours); io_error.
  static Result<std::unique_ptr<NvmeStore>> open(const NvmeStoreOptions& options,
                                                 const Layout& layout, const RecordFormat& format);
  // Releases the lock, after index and data file are closed. Without close(), what was written is
  // safe from the end of the process, though not from a power cut.
  // REQUIRES: no request in flight.
  ~NvmeStore();

  std::uint32_t slot_count() const noexcept { return slot_count_; }
  std::uint64_t slot_offset(std::uint32_t slot) const noexcept {
    return slot * format_.record_bytes();
  }
  BlockDevice& device() noexcept { return *device_; }
  SlotIndex& index() noexcept { return *index_; }

  // How many caches have had this directory. Not counted by open(): the drives of a tier have one
  // life together (NvmeTier).
  std::uint32_t life() const noexcept { return life_; }
  // Durable when it returns. Returns: success; io_error (then life() is what it was).
  Result<void> begin_life(std::uint32_t life);

  // Tells of every record of this directory, by index or, where that is not usable, by a scan of the
  // headers (with progress); its slot s is slot first_slot + s there. Payloads are verified when
  // they are read, not here. Then settle() ends it with the slots (of this store) that do not count.
  // REQUIRES: no request in flight; called once, before the first write, after the stores with
  // lower slots.
  // Returns: success; io_error (the data file does not answer). Damage is not an error: the log
  // counts it.
  Result<void> find(RecordSink& sink, std::uint32_t first_slot);
  void settle(const std::vector<std::uint32_t>& useless);

  // Blocking: everything written and indexed survives a power cut afterwards. Keeps the lock.
  // REQUIRES: no request in flight.
  // Returns: success; io_error of the data file. An index that fails is logged: the next start
  // scans.
  Result<void> close();

 private:
  NvmeStore(const NvmeStoreOptions& options, const RecordFormat& format, NvmeDirectory directory)
      : options_(options), format_(format), directory_(std::move(directory)) {}

  Result<void> prepare_directory(const NvmeSizing& sizing);
  Result<void> open_files(const NvmeSizing& sizing);
  void open_index(bool wanted);
  bool tell(RecordSink& sink, std::uint32_t slot, std::span<const std::byte> header);
  bool load_index(RecordSink& sink, std::uint32_t first_slot);
  Result<void> scan(RecordSink& sink, std::uint32_t first_slot);
  void put(std::uint32_t slot, std::span<const std::byte> header);
  void forget(const std::vector<std::uint32_t>& slots);
  void log(const std::string& line) const;

  const NvmeStoreOptions options_;
  const RecordFormat format_;
  std::uint32_t slot_count_ = 0;
  std::uint32_t life_ = 0;
  bool fresh_ = true;        // the data file holds nothing yet
  bool from_index_ = false;  // what was found came from the index, so it lacks nothing
  // Destroyed from the last to the first: the lock goes when all else is closed.
  NvmeDirectory directory_;
  std::map<Verdict, std::uint32_t> refused_;  // headers, by why
  std::unique_ptr<NvmeScan> scan_;            // kept only where its requests may be in flight
  std::unique_ptr<SlotIndex> index_;
  std::unique_ptr<BlockDevice> device_;
};

}  // namespace terrace::internal
