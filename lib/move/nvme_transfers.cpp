// See nvme_transfers.hpp.
#include "move/nvme_transfers.hpp"

#include <algorithm>
#include <array>

#include "base/assert.hpp"
#include "io/cache_lines.hpp"
#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

constexpr std::size_t kReapMax = 64;
// Where larger requests gain nothing any more, measured on NVMe and virtual disks alike.
constexpr std::uint64_t kRunBytes = MiB;
// Host memory that transfers may hold.
constexpr std::uint64_t kBytesInFlight = 128 * MiB;
// Of reads and of writes two requests each a queue place, so that a completed one is replaced at once: before
// it is verified, by one that is sealed.
constexpr std::uint64_t kRequestsAPlace = 4;
constexpr std::uint64_t kSealAtOnceBytes = 256 * KiB;
// Where both wait for a place in the queue, a write follows after so many reads.
constexpr std::uint32_t kReadsAWrite = 4;
// A power cut takes what was written since: as much as with the commit interval of a file system.
constexpr std::chrono::seconds kSyncEvery{5};
constexpr std::uint64_t kSyncTag = ~std::uint64_t{0};  // an index that no transfer has

void drop_front(std::vector<std::uint32_t>& queue, std::size_t count) {
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(count));
}

std::uint64_t tag_of(std::uint32_t index, std::uint32_t generation) {
  return (std::uint64_t{generation} << 32) | index;
}

}  // namespace

NvmeTransfers::NvmeTransfers(BlockStore& store, Tiers& tiers, const Clock& clock,
                             std::uint32_t queue_depth, bool hashes)
    : store_(store), tiers_(tiers), clock_(clock), hashes_(hashes), queue_depth_(queue_depth) {
  const std::uint64_t record_bytes = tiers.format.record_bytes();
  const std::uint32_t drives = tiers.nvme->drive_count();
  run_blocks_max_ = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kRunBytes / record_bytes, 1, kIoPiecesMax));
  const std::uint64_t at_least = std::uint64_t{queue_depth} * drives;
  const std::uint64_t count = std::clamp<std::uint64_t>(
      kBytesInFlight / record_bytes, at_least, at_least * kRequestsAPlace * run_blocks_max_);
  slots_.resize(count);
  for (auto index = static_cast<std::uint32_t>(count); index-- > 0;) free_.push_back(index);
  for (auto* list : {&started_, &fresh_, &ended_}) list->reserve(count);
  results_.reserve(at_least);
  requests_.reserve(queue_depth + 1);
  pieces_.reserve(std::size_t{queue_depth} * kIoPiecesMax);
  drives_.resize(drives);
  for (std::uint32_t drive = 0; drive < drives; ++drive) {
    for (auto* queue : {&drives_[drive].reads, &drives_[drive].writes}) queue->reserve(count);
    drives_[drive].synced = clock.now();
    devices_.push_back(&tiers.nvme->device(drive));
    drives_[drive].is_virtual = devices_.back()->facts().virtual_disk;
  }
}

std::uint32_t NvmeTransfers::writes_free() const noexcept {
  const auto most = std::max<std::uint32_t>(static_cast<std::uint32_t>(slots_.size() / 2), 1);
  return std::min(most - std::min(most, writes_), static_cast<std::uint32_t>(free_.size()));
}

void NvmeTransfers::start(Transfer::Step step, BlockId block) noexcept {
  TERRACE_ASSERT(!free_.empty(), block);
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.transfer = {};
  slot.transfer.step = step;
  slot.transfer.block = block;
  slot.transfer.nvme_slot = store_.at(block, kNvme0).slot;
  slot.dram_slot = store_.at(block, kDram0).slot;
  slot.started = looks_;
  if (slot.transfer.is_write()) ++writes_;
  started_.push_back(index);
}

void NvmeTransfers::hand_over() {
  fresh_.insert(fresh_.end(), started_.begin(), started_.end());
  started_.clear();
}

void NvmeTransfers::finish(std::uint32_t index) noexcept {
  Transfer& transfer = slots_[index].transfer;
  if (transfer.overdue) --late_;
  if (transfer.is_write()) {
    // Now, and not when the drive answered: the index knows the record only now, and both are synced
    // together.
    note_change(transfer.nvme_slot);
    --writes_;
    if (transfer.overdue) --late_writes_;
  }
  transfer.step = Transfer::Step::idle;
  transfer.block = kNoBlock;
  free_.push_back(index);
}

// ---- Out.

bool NvmeTransfers::follows(const Slot& slot, const Slot& before) const noexcept {
  return slot.transfer.step == before.transfer.step &&
         slot.transfer.nvme_slot == before.transfer.nvme_slot + 1 &&
         drive_of(slot) == drive_of(before);
}

// Neighbours in order of their start become runs: fetches start reads, and spills writes, in the
// order of a chain, whose blocks have slots side by side where there was room.
void NvmeTransfers::form_runs() {
  Slot* last = nullptr;
  std::uint32_t length = 0;
  for (const std::uint32_t index : fresh_) {
    Slot& slot = slots_[index];
    slot.next = kNone;
    slot.sealed = false;
    ++slot.generation;
    if (last != nullptr && length < run_blocks_max_ && follows(slot, *last)) {
      last->next = index;
      ++length;
    } else {
      enqueue(index);
      length = 1;
    }
    last = &slot;
  }
  fresh_.clear();
}

void NvmeTransfers::enqueue(std::uint32_t head) {
  Drive& drive = drives_[drive_of(slots_[head])];
  (slots_[head].transfer.is_write() ? drive.writes : drive.reads).push_back(head);
}

bool NvmeTransfers::submit() {
  form_runs();
  bool moved = false;
  for (std::uint32_t drive = 0; drive < drives_.size(); ++drive) moved |= submit_to(drive);
  for (Drive& drive : drives_) moved |= seal_ahead(drive);  // more to do is no time to sleep
  return moved;
}

// What a drive has no room for yet is sealed while it works on the rest, as much as it can complete before
// this thread looks again, so that a completed request is replaced at once. A little at a time: somebody
// may wait for what completes meanwhile.
bool NvmeTransfers::seal_ahead(Drive& drive) {
  const std::uint64_t enough = sealed_bytes_ + kSealAtOnceBytes;
  const std::size_t heads = std::min<std::size_t>(queue_depth_, drive.writes.size());
  for (; drive.sealed < heads; ++drive.sealed) {
    for (std::uint32_t index = drive.writes[drive.sealed]; index != kNone;
         index = slots_[index].next) {
      if (sealed_bytes_ >= enough) return true;
      seal(slots_[index]);
    }
  }
  return false;
}

// In portions: while the records of the next one are sealed, the drive has this one to work on.
bool NvmeTransfers::submit_to(std::uint32_t drive) {
  std::size_t sum = 0;
  for (;;) {
    const std::size_t taken = submit_portion(drive);
    sum += taken;
    if (taken == 0 || taken < requests_.size()) return sum > 0;
  }
}

// Returns: how many requests the drive took, of those in requests_.
std::size_t NvmeTransfers::submit_portion(std::uint32_t drive) {
  Drive& state = drives_[drive];
  BlockDevice& device = *devices_[drive];
  const std::size_t room = queue_depth_ - std::min<std::size_t>(queue_depth_, device.in_flight());
  // A place of its own: where writes never end, none would be left for it.
  const bool syncs = room > 0 && is_sync_due(state);
  gather(state, syncs ? room - 1 : room);
  const std::size_t transfers = requests_.size();
  if (syncs) requests_.push_back({.kind = IoRequest::Kind::sync, .user_data = kSyncTag});
  if (requests_.empty()) return 0;
  const std::size_t taken = device.submit(requests_);
  if (taken > transfers) note_sync(drive);
  note_taken(state, std::span(requests_).first(std::min(taken, transfers)));
  return taken;
}

// Reads first: somebody waits for them. But writes go on: what was never written is lost when DRAM fills up.
void NvmeTransfers::gather(Drive& drive, std::size_t room) {
  requests_.clear();
  pieces_.clear();
  const std::uint64_t enough = sealed_bytes_ + kRunBytes;
  auto read = drive.reads.begin();
  auto write = drive.writes.begin();
  std::uint32_t reads_in_row = drive.reads_in_row;
  while (requests_.size() < room && sealed_bytes_ < enough) {
    const bool has_read = read != drive.reads.end();
    const bool has_write = write != drive.writes.end();
    if (!has_read && !has_write) return;
    const bool is_read = has_read && !(has_write && reads_in_row >= kReadsAWrite);
    reads_in_row = is_read ? reads_in_row + 1 : 0;
    requests_.push_back(request_of(is_read ? *read++ : *write++));
  }
}

void NvmeTransfers::note_taken(Drive& drive, std::span<const IoRequest> requests) {
  std::size_t reads = 0;
  for (const IoRequest& request : requests) {
    const bool is_read = request.kind == IoRequest::Kind::read;
    drive.reads_in_row = is_read ? drive.reads_in_row + 1 : 0;
    reads += is_read;
  }
  const std::size_t writes = requests.size() - reads;
  drop_front(drive.reads, reads);
  drop_front(drive.writes, writes);
  drive.sealed -= std::min(drive.sealed, writes);
}

void NvmeTransfers::note_sync(std::uint32_t drive) {
  drives_[drive].syncing = true;
  drives_[drive].unsynced = false;
  drives_[drive].synced = clock_.now();
  tiers_.nvme->index_sync_soon(drive);
}

bool NvmeTransfers::is_sync_due(const Drive& drive) const noexcept {
  return drive.unsynced && !drive.syncing && clock_.now() - drive.synced >= kSyncEvery;
}

// Its further pieces stand in pieces_, which was reserved and so does not move.
IoRequest NvmeTransfers::request_of(std::uint32_t head) {
  Slot& first = slots_[head];
  const std::span<std::byte> record = record_of(first);
  const bool write = first.transfer.is_write();
  const std::size_t from = pieces_.size();
  seal(first);
  for (std::uint32_t index = first.next; index != kNone; index = slots_[index].next) {
    Slot& slot = slots_[index];
    seal(slot);
    const std::span<std::byte> bytes = record_of(slot);
    pieces_.push_back({bytes.data(), static_cast<std::uint32_t>(bytes.size())});
  }
  return IoRequest{
      .kind = write ? IoRequest::Kind::write : IoRequest::Kind::read,
      .offset = tiers_.nvme->offset_on_drive(first.transfer.nvme_slot),
      .data = record.data(),
      .bytes = static_cast<std::uint32_t>(record.size()),
      .user_data = tag_of(head, first.generation),
      .more = std::span(pieces_).subspan(from),
  };
}

void NvmeTransfers::seal(Slot& slot) {
  if (slot.sealed || !slot.transfer.is_write() || !hashes_) return;
  RecordMeta meta = store_.table().meta(slot.transfer.block);
  meta.incarnation = store_.events().incarnation();
  meta.sequence = sequence_++;
  tiers_.format.seal(record_of(slot), meta);
  if (drives_[drive_of(slot)].is_virtual) flush_lines(record_of(slot));
  slot.sealed = true;
  sealed_bytes_ += tiers_.format.record_bytes();
}

// ---- In.

bool NvmeTransfers::reap() {
  for (std::uint32_t drive = 0; drive < drives_.size(); ++drive) collect(drive);
  if (results_.empty()) return false;
  // The drives go on while this thread hashes.
  for (std::uint32_t drive = 0; drive < drives_.size(); ++drive) (void)submit_to(drive);
  for (const Result& result : results_) retire(result);
  results_.clear();
  return true;
}

void NvmeTransfers::collect(std::uint32_t drive) {
  std::array<IoResult, kReapMax> results;
  const std::size_t count = devices_[drive]->reap(results);
  for (const IoResult& result : std::span(results).first(count)) {
    if (result.user_data == kSyncTag) {
      drives_[drive].syncing = false;
      if (result.os_error != 0) ++failed_syncs_;
      continue;
    }
    const auto head = static_cast<std::uint32_t>(result.user_data);
    // The device checks that a completion is a request's own: I13.
    TERRACE_ASSERT(tag_of(head, slots_[head].generation) == result.user_data, head);
    results_.push_back({head, result.os_error});
    for (std::uint32_t index = head; index != kNone; index = slots_[index].next)
      store_.table().prefetch_move(slots_[index].transfer.block);
  }
}

void NvmeTransfers::retire(const Result& result) {
  const bool was_run = slots_[result.head].next != kNone;
  for (std::uint32_t index = result.head; index != kNone;) {
    Slot& slot = slots_[index];
    index = slot.next;
    slot.next = kNone;
    if (result.os_error != 0 && was_run) {
      ++slot.generation;
      enqueue(index_of(slot));
      continue;
    }
    slot.transfer.os_error = result.os_error;
    if (hashes_ && result.os_error == 0 && !slot.transfer.is_write()) {
      slot.transfer.verdict =
          tiers_.format.verify(record_of(slot), store_.table().meta(slot.transfer.block));
    }
    ended_.push_back(index_of(slot));
  }
}

}  // namespace terrace::internal
