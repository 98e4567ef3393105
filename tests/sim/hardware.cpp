#include "sim/hardware.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

namespace terrace::sim {
namespace {

std::string directory_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

}  // namespace

Result<std::unique_ptr<BlockDevice>> Hardware::open_drive(const BlockDeviceOptions& options) {
  world_.step();
  if (world_.crashed()) return fail(Code::io_error, "nothing opens for a dead process", EIO);
  if (world_.strikes(Fault::no_drive))
    return fail(Code::io_error, "the simulated file system is too small", ENOSPC);
  if (world_.strikes(Fault::dead_drive))
    return fail(Code::io_error, "the simulated drive is broken", EIO);
  const std::string directory = directory_of(options.path);
  Drive& drive = drives_[directory];
  if (drive.media == nullptr || !std::filesystem::exists(options.path)) {
    drive.media = std::make_shared<Media>();
    indexes_[directory].image = std::make_shared<IndexImage>();
    std::ofstream(options.path) << "what a simulated drive leaves in place of a data file\n";
  }
  drive.media->resize(options.size_bytes);
  return std::unique_ptr<BlockDevice>(std::make_unique<SimDisk>(world_, drive, options));
}

std::unique_ptr<internal::SlotIndex> Hardware::open_index(const std::string& path) {
  if (world_.crashed()) {
    grave_.image = std::make_shared<IndexImage>();
    return std::make_unique<SimIndex>(world_, grave_);
  }
  IndexFolder& folder = indexes_[directory_of(path)];
  IndexImage& image = *folder.image;
  if (!image.entries().empty()) {
    if (image.has_history() && world_.strikes(Fault::index_stale)) image.make_stale(random_);
    if (world_.strikes(Fault::index_swapped)) image.swap_two(random_);
    if (world_.strikes(Fault::index_damaged)) image.damage(random_);
    if (world_.strikes(Fault::index_gone)) image.clear();
  }
  return std::make_unique<SimIndex>(world_, folder);
}

void Hardware::crash(Crash how) {
  last_crash_ = how;
  world_.note(how == Crash::power_cut ? "POWER CUT" : "KILLED");
  durable_until_ = Clock::Time::max();
  for (auto& [directory, drive] : drives_) {
    drive.media = std::make_shared<Media>(*drive.media);
    if (drive.user != nullptr) drive.user->tear_into(*drive.media, random_);
    // Also where it was closed already: its last sync may have failed.
    if (!drive.media->all_durable()) durable_until_ = std::min(durable_until_, drive.durable_until);
    if (how == Crash::power_cut) drive.media->lose_power(random_);
    drive.user = nullptr;
  }
  updates_lost_ = 0;
  for (auto& [directory, index] : indexes_) {
    if (index.user != nullptr) {
      index.user->work();
      updates_lost_ += index.user->queued();
    }
    const bool is_behind = index.user != nullptr && index.user->queued() > 0;
    if (is_behind || !index.image->all_durable())
      durable_until_ = std::min(durable_until_, index.durable_until);
    index.image = std::make_shared<IndexImage>(*index.image);
    if (how == Crash::power_cut) index.image->lose_power(random_);
    index.user = nullptr;
  }
}

std::uint64_t Hardware::runs() const {
  std::uint64_t runs = 0;
  for (const auto& [directory, drive] : drives_) runs += drive.runs;
  return runs;
}

std::uint64_t Hardware::bytes_written() const {
  std::uint64_t sectors = 0;
  for (const auto& [directory, drive] : drives_) sectors += drive.media->landed();
  return sectors * kSectorBytes;
}

void Hardware::wear() {
  for (auto& [directory, drive] : drives_) {
    if (world_.strikes(Fault::flip_at_rest)) drive.media->flip_bit(random_);
    if (world_.strikes(Fault::short_file)) {
      const std::uint64_t size = drive.media->size_bytes();
      drive.media->cut(size - random_.next() % (size / 2));
    }
  }
}

}  // namespace terrace::sim
