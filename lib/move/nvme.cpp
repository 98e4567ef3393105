// How transfers to and from NVMe end; drives that fail; scrubbing.
#include <cerrno>

#include "base/assert.hpp"
#include "move/mover.hpp"

namespace terrace::internal {
namespace {

// How many blocks one round of scrubbing looks at: keeps the pump's lock short.
constexpr std::uint32_t kScrubLook = 256;

// A full file system, a quota or a limit is no fault of the drive: what is on it can still be read.
bool is_drives_fault(std::int32_t os_error) noexcept {
  return os_error == EIO || os_error == ENXIO || os_error == ENODEV || os_error == EROFS ||
         os_error == ETIMEDOUT;
}

}  // namespace

bool Mover::end_transfers() {
  if (nvme_ == nullptr) return false;
  const bool any = nvme_->take_ended([this](std::uint32_t index) {
    const Transfer& transfer = (*nvme_)[index];
    if (!transfer.overdue)
      note_outcome(tiers_.nvme->drive_of(transfer.nvme_slot), transfer.os_error);
    transfer.is_write() ? end_write(index) : end_read(index);
  });
  store_.stats().places[kNvme0].io_errors += nvme_->take_failed_syncs();
  nvme_->watch([this](const Transfer& transfer) { give_up_late(transfer); });
  return any;
}

void Mover::end_read(std::uint32_t index) {
  const Transfer transfer = (*nvme_)[index];
  const BlockId id = transfer.block;
  PlaceStats& stats = store_.stats().places[kNvme0];
  const bool scrubbed = transfer.step == Transfer::Step::scrubbing;
  nvme_->finish(index);
  if (transfer.os_error == 0) stats.bytes_read += tiers_.layout.block_bytes();
  if (scrubbed) ++store_.stats().scrubbed_blocks;
  if (transfer.ok()) {
    store_.finish_landing(id, kDram0);
    // Unless somebody asked for it meanwhile, what was only looked at leaves again.
    if (scrubbed && store_.at(id, kDram0).pins == 0) store_.evict(id, kDram0);
    store_.unpin(id, kNvme0);
    return;
  }
  if (transfer.os_error == 0) ++stats.corrupt_blocks;
  if (transfer.os_error != 0 && !transfer.overdue) ++stats.io_errors;  // or it is counted already
  forget_copy(id, transfer.nvme_slot);
  store_.fail_landing(id, kDram0);
  store_.unpin(id, kNvme0);
}

void Mover::end_write(std::uint32_t index) {
  Transfer& transfer = (*nvme_)[index];
  const BlockId id = transfer.block;
  Stats& stats = store_.stats();
  if (transfer.os_error == 0) {
    stats.places[kNvme0].bytes_written += tiers_.layout.block_bytes();
    stats.nvme_bytes_worn += tiers_.format.record_bytes();
    transfer.step = Transfer::Step::indexing;
    indexing_.push_back(index);
    return;
  }
  if (!transfer.overdue) ++stats.places[kNvme0].io_errors;
  nvme_->finish(index);
  store_.fail_landing(id, kNvme0);
  store_.unpin(id, kDram0);
}

// Its memory stays the drive's until it answers. Whoever waits for the block recomputes it.
void Mover::give_up_late(const Transfer& transfer) {
  ++store_.stats().places[kNvme0].io_errors;
  if (!transfer.is_write()) forget_copy(transfer.block, transfer.nvme_slot);
  note_outcome(tiers_.nvme->drive_of(transfer.nvme_slot), ETIMEDOUT);
}

void Mover::forget_copy(BlockId id, std::uint32_t slot) {
  if (store_.state(id, kNvme0) != BlockState::resident) return;  // forgotten already
  to_forget_.push_back(slot);
  store_.condemn(id, kNvme0);
}

void Mover::note_outcome(std::uint32_t drive, std::int32_t os_error) {
  if (os_error == 0) return tiers_.nvme->succeeded(drive);
  if (!is_drives_fault(os_error) || !tiers_.nvme->failed(drive)) return;
  store_.condemn_range(kNvme0, drive);
  ++drives_lost_;
}

// A block is resident on NVMe once the index has written it: kill -9 cannot take it any more then.
bool Mover::index_written() {
  if (tiers_.nvme == nullptr) return false;
  std::erase_if(to_forget_, [this](std::uint32_t slot) {
    if (!tiers_.nvme->index_erase(slot)) return false;
    nvme_->note_change(slot);
    return true;
  });
  if (!to_forget_.empty()) return false;  // what is in such a slot now must not be forgotten later
  bool moved = std::erase_if(indexing_, [this](std::uint32_t index) { return put(index); }) > 0;
  moved |= std::erase_if(publishing_, [this](const Publishing& entry) {
             const std::uint32_t slot = (*nvme_)[entry.transfer].nvme_slot;
             if (!tiers_.nvme->index_has_written(slot, entry.taken)) return false;
             publish_on_nvme(entry.transfer);
             return true;
           }) > 0;
  return moved;
}

// Returns: false where the index's queue is full; the next tick tries again.
bool Mover::put(std::uint32_t index) {
  const Transfer& transfer = (*nvme_)[index];
  const auto record = tiers_.dram.record(store_.at(transfer.block, kDram0).slot);
  const auto header = record.first(tiers_.format.entry_bytes());
  if (!tiers_.nvme->index_put(transfer.nvme_slot, header)) return false;
  publishing_.push_back({index, tiers_.nvme->index_taken(transfer.nvme_slot)});
  return true;
}

void Mover::publish_on_nvme(std::uint32_t index) {
  const Transfer transfer = (*nvme_)[index];
  nvme_->finish(index);
  if (tiers_.nvme->in_service(tiers_.nvme->drive_of(transfer.nvme_slot))) {
    store_.finish_landing(transfer.block, kNvme0);
  } else {
    store_.fail_landing(transfer.block, kNvme0);
  }
  store_.unpin(transfer.block, kDram0);
}

// One record at a time, while nobody reads, into a DRAM slot that no last copy has to leave for.
bool Mover::scrub() {
  if (nvme_ == nullptr || scrub_.bytes_per_second <= 0) return false;
  const auto bytes = static_cast<double>(tiers_.format.record_bytes());
  const Clock::Time now = store_.now();
  const double seconds = std::chrono::duration<double>(now - scrub_.refilled).count();
  scrub_.left_bytes = std::min(bytes, scrub_.left_bytes + seconds * scrub_.bytes_per_second);
  scrub_.refilled = now;
  if (scrub_.left_bytes < bytes || nvme_->reads_in_flight() || nvme_->free() == 0) return false;
  for (std::uint32_t looked = 0; looked < kScrubLook; ++looked) {
    const BlockId id = scrub_.next;
    scrub_.next = (scrub_.next + 1) % store_.table().capacity();
    if (store_.state(id, kNvme0) != BlockState::resident) continue;
    if (store_.state(id, kDram0) != BlockState::absent) continue;
    if (!store_.begin_landing(id, kDram0, Loss::refused)) return false;
    store_.pin(id, kNvme0);
    nvme_->start(Transfer::Step::scrubbing, id);
    scrub_.left_bytes -= bytes;
    return true;
  }
  return false;
}

}  // namespace terrace::internal
