// See nvme_tier.hpp.
#include "tier/nvme_tier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/assert.hpp"

namespace terrace::internal {
namespace {

// What a broken drive says, and a mistake in the options does not.
bool is_broken_device(const Error& error) noexcept {
  return error.code == Code::io_error && (error.os_error == EIO || error.os_error == ENXIO ||
                                          error.os_error == ENODEV || error.os_error == EROFS);
}

}  // namespace

Result<std::unique_ptr<NvmeTier>> NvmeTier::open(std::span<const std::string> paths,
                                                 NvmeStoreOptions how, const Layout& layout,
                                                 const RecordFormat& format) {
  TERRACE_ASSERT(!paths.empty(), paths.size());
  if (std::set(paths.begin(), paths.end()).size() != paths.size()) {
    return fail(Code::invalid_argument, "nvme_paths names one directory twice");
  }
  how.bytes_max /= paths.size();
  std::unique_ptr<NvmeTier> tier(new NvmeTier(std::move(how), format));
  for (const std::string& path : paths) {
    // The last one must open where none has so far: a tier without drives is none.
    const bool optional = paths.size() > 1 && !(tier->drives_.empty() && &path == &paths.back());
    if (auto added = tier->add(path, layout, optional); !added) return unexpected(added.error());
  }
  tier->begin_life();
  return tier;
}

// A record that a power cut tore may lie where no index knows of it, and a scan find it years later:
// it must not pass for newer than what was written since. So the life is durable before the first
// write. A drive that cannot say so, being full, takes its records as ever; only if there is such a
// record among them, too, is a block lost to it.
void NvmeTier::begin_life() {
  for (const Drive& drive : drives_) life_ = std::max(life_, drive.store->life());
  ++life_;
  for (const Drive& drive : drives_) {
    const auto begun = drive.store->begin_life(life_);
    if (!begun && how_.log) how_.log(begun.error().message);
  }
}

Result<void> NvmeTier::add(const std::string& path, const Layout& layout, bool optional) {
  NvmeStoreOptions options = how_;
  options.path = path;
  auto store = NvmeStore::open(options, layout, format_);
  if (store) {
    drives_.push_back({std::move(*store), slot_count_});
    slot_count_ += drives_.back().store->slot_count();
    return {};
  }
  if (!optional || !is_broken_device(store.error())) return unexpected(store.error());
  ++left_out_;
  if (how_.log) {
    how_.log(fmt::format("{} is left out, its drive is broken: {}", path, store.error().message));
  }
  return {};
}

std::vector<std::uint32_t> NvmeTier::slots_by_drive() const {
  std::vector<std::uint32_t> counts;
  for (const Drive& drive : drives_) counts.push_back(drive.store->slot_count());
  return counts;
}

std::uint32_t NvmeTier::drive_of(std::uint32_t slot) const noexcept {
  std::uint32_t drive = drive_count() - 1;
  while (slot < drives_[drive].first_slot) --drive;
  return drive;
}

std::uint64_t NvmeTier::offset_on_drive(std::uint32_t slot) const noexcept {
  const Drive& drive = drives_[drive_of(slot)];
  return drive.store->slot_offset(slot - drive.first_slot);
}

bool NvmeTier::failed(std::uint32_t index) noexcept {
  Drive& drive = drives_[index];
  if (!drive.in_service || ++drive.failures < kFailuresMax) return false;
  drive.in_service = false;
  return true;
}

bool NvmeTier::index_put(std::uint32_t slot, std::span<const std::byte> header) {
  const Drive& drive = drives_[drive_of(slot)];
  return !drive.in_service || drive.store->index().put(slot - drive.first_slot, header);
}

bool NvmeTier::index_erase(std::uint32_t slot) {
  const Drive& drive = drives_[drive_of(slot)];
  return !drive.in_service || drive.store->index().erase(slot - drive.first_slot);
}

Result<void> NvmeTier::find(RecordSink& sink) {
  for (const Drive& drive : drives_) {
    if (auto done = drive.store->find(sink, drive.first_slot); !done) return done;
  }
  return {};
}

void NvmeTier::settle(const std::vector<std::uint32_t>& useless) {
  std::vector<std::vector<std::uint32_t>> by_drive(drives_.size());
  for (const std::uint32_t slot : useless) {
    const std::uint32_t drive = drive_of(slot);
    by_drive[drive].push_back(slot - drives_[drive].first_slot);
  }
  for (std::size_t i = 0; i < drives_.size(); ++i) drives_[i].store->settle(by_drive[i]);
}

Result<void> NvmeTier::close() {
  Result<void> first;
  for (const Drive& drive : drives_) {
    auto closed = drive.store->close();
    if (!closed && first) first = std::move(closed);
  }
  return first;
}

NvmeTier::Facts NvmeTier::facts() const {
  Facts facts;
  facts.device = {.io_uring = true, .direct = true, .registered_buffers = true};
  facts.drives = drive_count() + left_out_;
  facts.drives_failed = left_out_;
  for (const Drive& drive : drives_) {
    const BlockDeviceFacts device = drive.store->device().facts();
    facts.device.io_uring &= device.io_uring;
    facts.device.direct &= device.direct;
    facts.device.registered_buffers &= device.registered_buffers;
    facts.index &= drive.store->index().usable();
    facts.index_failures += drive.store->index().failures();
    facts.index_bytes_written += drive.store->index().bytes_written();
    if (!drive.in_service) ++facts.drives_failed;
  }
  return facts;
}

}  // namespace terrace::internal
