// See nvme_store.hpp.
#include "tier/nvme_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/assert.hpp"
#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

constexpr std::uint32_t kSlotsMin = 8;
constexpr std::uint64_t kSlotsMax = std::uint64_t{1} << 31;
// Two directories, lock, manifest and its draft: five blocks of 4 KiB; three times that.
constexpr std::uint64_t kFixedBytes = 64 * KiB;
constexpr std::uint64_t kManifests = 2;  // itself and its draft
// File systems count the blocks that map a file to the file. Worst case on ext4: each record is an
// extent of its own, and one between two; a leaf of 4 KiB maps 340 extents: 24 bytes a record.
constexpr std::uint64_t kMapBytesPerSlot = 32;
// Below this RocksDB's floor (write buffers, logs, manifests: about 6 MiB) is worth more as
// records, and a scan of the headers takes less than a second.
[[maybe_unused]] constexpr std::uint64_t kIndexBytesMaxFloor = 64 * MiB;
[[maybe_unused]] constexpr std::uint64_t kIndexShareMax = 8;  // at most an eighth of the cap

std::uint64_t slots_within(std::uint64_t bytes, const RecordFormat& format) noexcept {
  const std::uint64_t more_groups = format.layout().groups.size() - 1;
  const std::uint64_t fixed = kFixedBytes + kManifests * more_groups * kManifestBytesPerGroup;
  if (bytes <= fixed) return 0;
  return std::min((bytes - fixed) / (format.record_bytes() + kMapBytesPerSlot), kSlotsMax);
}

#if defined(TERRACE_WITH_ROCKSDB)
// Returns: the most slots that leave room for their index, or 0 where that takes too large a share.
std::uint32_t slots_beside_index(std::uint64_t bytes_max, const RecordFormat& format) noexcept {
  if (bytes_max < kIndexBytesMaxFloor) return 0;
  const auto index_bytes = [&](std::uint64_t slots) {
    return rocks_slot_index_bytes_max(static_cast<std::uint32_t>(slots), format.entry_bytes());
  };
  std::uint64_t fits = 0;
  std::uint64_t too_many = slots_within(bytes_max, format) + 1;
  while (too_many - fits > 1) {  // the index grows with the slots, so the boundary is unique
    const std::uint64_t middle = fits + (too_many - fits) / 2;
    const std::uint64_t index = index_bytes(middle);
    const bool fit = index < bytes_max && slots_within(bytes_max - index, format) >= middle;
    (fit ? fits : too_many) = middle;
  }
  const bool affordable = fits > 0 && index_bytes(fits) <= bytes_max / kIndexShareMax;
  return affordable ? static_cast<std::uint32_t>(fits) : 0;
}
#endif

}  // namespace

NvmeSizing size_nvme(std::uint64_t bytes_max, const RecordFormat& format) noexcept {
#if defined(TERRACE_WITH_ROCKSDB)
  if (const std::uint32_t slots = slots_beside_index(bytes_max, format); slots > 0) {
    return {slots, true};
  }
#endif
  return {static_cast<std::uint32_t>(slots_within(bytes_max, format)), false};
}

Result<std::unique_ptr<NvmeStore>> NvmeStore::open(const NvmeStoreOptions& options,
                                                   const Layout& layout,
                                                   const RecordFormat& format) {
  TERRACE_ASSERT(layout.layout_digest() == format.layout_digest(), layout.block_bytes());
  const NvmeSizing sizing = size_nvme(options.bytes_max, format);
  if (sizing.slot_count < kSlotsMin) {
    return fail(Code::invalid_argument,
                "nvme_bytes has no room for 8 blocks: raise it, or leave the NVMe tier out");
  }
  auto directory = NvmeDirectory::open(options.path, options.log);
  if (!directory) return unexpected(directory.error());
  std::unique_ptr<NvmeStore> store(new NvmeStore(options, format, std::move(*directory)));
  if (auto ready = store->prepare_directory(sizing); !ready) return unexpected(ready.error());
  if (auto opened = store->open_files(sizing); !opened) return unexpected(opened.error());
  return store;
}

NvmeStore::~NvmeStore() {
  // A scan that was given up on has buffers that the device may still write to.
  device_.reset();
}

// Removes what is of no use before anything grows, so that the cap holds at every step. The
// manifest is written before the data file it speaks of: one without the other is a fresh start.
Result<void> NvmeStore::prepare_directory(const NvmeSizing& sizing) {
  directory_.remove_leftovers();
  const auto before = directory_.manifest(format_);
  fresh_ = !before || !directory_.has_data();
  if (!before && directory_.has_data()) {
    log(fmt::format("{} was made for another block layout or format, and is emptied",
                    options_.path));
  }
  const bool smaller = before && sizing.slot_count < before->slot_count;
  if (fresh_) {
    if (auto removed = directory_.remove_data(); !removed) return removed;
  }
  if (fresh_ || smaller || !sizing.with_index) {
    if (auto removed = directory_.remove_index(); !removed) return removed;
  }
  if (before) life_ = before->life;
  slot_count_ = sizing.slot_count;
  if (before && before->slot_count == slot_count_) return {};
  return directory_.write_manifest({format_, slot_count_, life_});
}

Result<void> NvmeStore::begin_life(std::uint32_t life) {
  auto written = directory_.write_manifest({format_, slot_count_, life});
  if (written) life_ = life;
  return written;
}

Result<void> NvmeStore::open_files(const NvmeSizing& sizing) {
  BlockDeviceOptions how;
  how.path = directory_.data_path();
  how.size_bytes = slot_count_ * format_.record_bytes();
  how.queue_depth_max = options_.queue_depth_max;
  how.buffers = options_.buffers;
  how.io_uring = options_.io_uring;
  how.direct = options_.direct;
  if (options_.progress) {
    how.progress = [this](std::uint64_t done, std::uint64_t total) {
      options_.progress("preallocate NVMe", done, total);
    };
  }
  auto device = options_.block_device ? options_.block_device(how) : open_block_device(how);
  if (!device) return unexpected(device.error());
  device_ = std::move(*device);
  open_index(sizing.with_index);
  return {};
}

// An index that does not open costs a scan at each start, and nothing else.
void NvmeStore::open_index(bool wanted) {
  if (options_.slot_index) index_ = options_.slot_index(directory_.index_path());
#if defined(TERRACE_WITH_ROCKSDB)
  if (wanted && index_ == nullptr) {
    auto index = open_rocks_slot_index(directory_.index_path(), slot_count_, format_.entry_bytes(),
                                       options_.log);
    if (index) index_ = std::move(*index);
  }
#endif
  if (index_ == nullptr) {
    if (wanted) log(fmt::format("{} has no index: records are found by a scan", options_.path));
    index_ = make_null_slot_index();
  }
  if (fresh_ && !index_->mark_complete()) log("the slot index cannot be written");
}

Result<void> NvmeStore::find(RecordSink& sink, std::uint32_t first_slot) {
  if (fresh_) return {};
  from_index_ = index_->usable() && load_index(sink, first_slot);
  if (!from_index_) {
    if (auto scanned = scan(sink, first_slot); !scanned) return scanned;
  }
  std::string refused;
  for (const auto& [verdict, count] : refused_)
    refused += fmt::format(" {} {}", count, to_string(verdict));
  if (!refused.empty()) log(fmt::format("{}: headers refused:{}", options_.path, refused));
  return {};
}

void NvmeStore::settle(const std::vector<std::uint32_t>& useless) {
  forget(useless);
  if (!fresh_ && !from_index_ && !index_->mark_complete()) log("the slot index cannot be written");
}

// Returns: whether `header` is one of a record of ours; then the sink was told.
bool NvmeStore::tell(RecordSink& sink, std::uint32_t slot, std::span<const std::byte> header) {
  RecordMeta meta;
  const Verdict verdict = format_.parse(header, meta);
  if (verdict == Verdict::good) {
    sink.add(slot, meta);
  } else if (verdict != Verdict::not_a_record) {
    ++refused_[verdict];
  }
  return verdict == Verdict::good;
}

// Returns: false where the index turned out to be damaged.
bool NvmeStore::load_index(RecordSink& sink, std::uint32_t first_slot) {
  std::vector<std::uint32_t> stale;
  std::uint64_t entries = 0;
  const auto loaded = index_->load([&](std::uint32_t slot, std::span<const std::byte> header) {
    if (slot >= slot_count_ || !tell(sink, first_slot + slot, header)) stale.push_back(slot);
    if (++entries % 4096 == 0 && options_.progress) {
      options_.progress("load NVMe index", entries, slot_count_);
    }
  });
  if (!loaded) {
    log(fmt::format("{}: {}; scanning the records", options_.path, loaded.error().message));
    sink.forget_from(first_slot);
    refused_.clear();
    return false;
  }
  forget(stale);
  return true;
}

Result<void> NvmeStore::scan(RecordSink& sink, std::uint32_t first_slot) {
  scan_ = std::make_unique<NvmeScan>(*device_, format_, slot_count_, options_.buffers,
                                     options_.queue_depth_max);
  const auto on_header = [&](std::uint32_t slot, std::span<const std::byte> header) {
    if (tell(sink, first_slot + slot, header)) put(slot, header.first(format_.entry_bytes()));
  };
  const auto progress = [this](std::uint64_t done, std::uint64_t total) {
    if (options_.progress) options_.progress("scan NVMe", done, total);
  };
  if (auto scanned = scan_->run(on_header, progress); !scanned) return scanned;
  if (scan_->unreadable_slots() > 0) {
    log(fmt::format("{}: {} records could not be read", options_.path, scan_->unreadable_slots()));
  }
  scan_.reset();
  return {};
}

// Only in recovery, which may block: the index's thread takes what is queued in bounded time.
void NvmeStore::put(std::uint32_t slot, std::span<const std::byte> header) {
  while (!index_->put(slot, header)) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

void NvmeStore::forget(const std::vector<std::uint32_t>& slots) {
  for (const std::uint32_t slot : slots) {
    while (!index_->erase(slot)) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// The records first: an index that is ahead of them names what a power cut may have taken. An index
// that cannot be written is no error of the store: the next start scans the records.
Result<void> NvmeStore::close() {
  auto synced = device_->sync();
  if (const auto flushed = index_->flush(); !flushed) {
    log(fmt::format("{}: {}", options_.path, flushed.error().message));
  }
  return synced;
}

void NvmeStore::log(const std::string& line) const {
  if (options_.log) options_.log(line);
}

}  // namespace terrace::internal
