// The NVMe tier: one or several directories, a drive each, as one range of slots.
//
// Slots are numbered through: drive 0 has the first ones, drive 1 the next. Whoever fills slots
// chooses the drive (SlotPool's ranges), run by run, so that a long prefix is read from all drives
// at once. A drive that keeps failing is taken out of service, and the others stay.
// Called by: cache (open, recover, close), mover (devices, index).
// Thread rule: one caller at a time (the pump), open and close included.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tier/nvme_manifest.hpp"
#include "tier/nvme_store.hpp"

namespace terrace::internal {

class NvmeTier {
 public:
  // A drive fails for good after so many failures without one success between them.
  static constexpr std::uint32_t kFailuresMax = 8;

  // `how.path` is ignored, and `how.bytes_max` shared out equally among `paths`. Where there are
  // several, one whose device is broken (EIO, ENXIO, ENODEV, EROFS) is left out, and the log says so.
  // Returns: the tier; as NvmeStore::open; invalid_argument (one path twice).
  static Result<std::unique_ptr<NvmeTier>> open(std::span<const std::string> paths,
                                                NvmeStoreOptions how, const Layout& layout,
                                                const RecordFormat& format);

  // Of the records of this life: above that of any record that an earlier one wrote, on whichever
  // of the drives, whether anybody still finds it or not.
  std::uint64_t sequence_min() const noexcept { return std::uint64_t{life_} << kLifeShift; }

  std::uint32_t slot_count() const noexcept { return slot_count_; }
  std::vector<std::uint32_t> slots_by_drive() const;
  std::uint32_t drive_count() const noexcept { return static_cast<std::uint32_t>(drives_.size()); }
  std::uint32_t drive_of(std::uint32_t slot) const noexcept;
  std::uint64_t offset_on_drive(std::uint32_t slot) const noexcept;
  BlockDevice& device(std::uint32_t drive) noexcept { return drives_[drive].store->device(); }

  // What the transfers of a drive say of it. Returns: true once, when it is to be given up.
  bool failed(std::uint32_t drive) noexcept;
  void succeeded(std::uint32_t drive) noexcept { drives_[drive].failures = 0; }
  bool in_service(std::uint32_t drive) const noexcept { return drives_[drive].in_service; }

  // As SlotIndex::put and erase; a drive out of service takes, and keeps, nothing.
  bool index_put(std::uint32_t slot, std::span<const std::byte> header);
  bool index_erase(std::uint32_t slot);
  // As SlotIndex::taken and written, of the index that `slot` belongs to.
  std::uint64_t index_taken(std::uint32_t slot) const noexcept {
    return drives_[drive_of(slot)].store->index().taken();
  }
  bool index_has_written(std::uint32_t slot, std::uint64_t taken) const noexcept {
    const Drive& drive = drives_[drive_of(slot)];
    return !drive.in_service || drive.store->index().written() >= taken;
  }
  void index_sync_soon(std::uint32_t drive) { drives_[drive].store->index().sync_soon(); }

  // As NvmeStore::find and settle, for all drives; slots are the tier's.
  Result<void> find(RecordSink& sink);
  void settle(const std::vector<std::uint32_t>& useless);
  // As NvmeStore::close, for all drives; the first error counts.
  Result<void> close();

  struct Facts {
    BlockDeviceFacts device;  // what all drives have
    bool index = true;        // likewise
    std::uint64_t index_failures = 0;
    std::uint64_t index_bytes_written = 0;
    std::uint32_t drives = 0;
    std::uint32_t drives_failed = 0;
  };
  Facts facts() const;

 private:
  struct Drive {
    std::unique_ptr<NvmeStore> store;
    std::uint32_t first_slot = 0;
    std::uint32_t failures = 0;  // since the last success
    bool in_service = true;
  };

  NvmeTier(NvmeStoreOptions how, const RecordFormat& format)
      : how_(std::move(how)), format_(format) {}
  Result<void> add(const std::string& path, const Layout& layout, bool optional);
  void begin_life();

  const NvmeStoreOptions how_;
  const RecordFormat& format_;
  std::vector<Drive> drives_;
  std::uint32_t slot_count_ = 0;
  std::uint32_t life_ = 0;
  std::uint32_t left_out_ = 0;  // drives that did not open
};

}  // namespace terrace::internal
