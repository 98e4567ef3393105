// What survives a restart: slot number -> header of the record in that slot. Disposable: a stale or
// lost entry costs a hit, never a byte, since every record is verified when it is read.
//
// Implementations: RocksDB (its work on its own thread), and none (records are found by a scan of
// the data file). Called by: NvmeStore and the mover.
// Thread rule: one caller at a time; never blocks but in load(), mark_complete() and flush().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "terrace/result.hpp"

namespace terrace::internal {

class SlotIndex {
 public:
  // `header` is 8-byte aligned, and valid during the call.
  using Visitor = std::function<void(std::uint32_t slot, std::span<const std::byte> header)>;

  // Drains what is queued, and ends its thread. In a forked child: leaves all as it is.
  virtual ~SlotIndex() = default;

  // False: it keeps nothing, or may lack some of what it should keep; scan the records instead.
  virtual bool usable() const noexcept = 0;

  // Visits every entry, by slot.
  // Returns: success; corrupt (it is empty now, and not usable until mark_complete()); io_error.
  virtual Result<void> load(const Visitor& visit) = 0;

  // Remembers (replaces) or forgets what is in `slot`.
  // Returns: false where the queue is full: poll, try again.
  virtual bool put(std::uint32_t slot, std::span<const std::byte> header) = 0;
  virtual bool erase(std::uint32_t slot) = 0;
  // What was put or erased before survives a power cut soon; nothing is promised.
  virtual void sync_soon() {}

  // "What it holds, with all that is queued, is all there is": usable() from here on, also after a
  // restart. Called after a scan has put every record, or for a data file that is new.
  // Returns: success; io_error.
  virtual Result<void> mark_complete() = 0;

  // Updates that could not be written. After the first one, the index is given up until it is
  // opened again.
  virtual std::uint64_t failures() const noexcept = 0;
  // All that it has written to disk: logs, tables, and tables again when they are merged.
  virtual std::uint64_t bytes_written() const noexcept { return 0; }

  // Blocks until everything queued is written, and would survive a power cut.
  // Returns: success; io_error, also where the index was given up for a lost update.
  virtual Result<void> flush() = 0;
};

std::unique_ptr<SlotIndex> make_null_slot_index();

// The functions below exist only where TERRACE_WITH_ROCKSDB is defined.

// The most that the RocksDB index for so many slots ever occupies on disk; a hard bound.
std::uint64_t rocks_slot_index_bytes_max(std::uint32_t slot_count, std::uint32_t entry_bytes);

// The directory `path` is created where needed. A database that does not open is removed (kept
// aside it would count against the cap) and opened anew, empty: then usable() is false.
// slot_count and entry_bytes set the bounds of memory and disk. `log` may be empty.
// Returns: the index; io_error.
Result<std::unique_ptr<SlotIndex>> open_rocks_slot_index(
    const std::string& path, std::uint32_t slot_count, std::uint32_t entry_bytes,
    const std::function<void(const std::string& line)>& log = {});

// Looks into the database at `path`, which nobody has open, and changes nothing, damage included.
// Returns: whether it is usable() for whoever opens it next; corrupt (what could be read was
// visited); io_error.
Result<bool> read_rocks_slot_index(const std::string& path, std::uint32_t entry_bytes,
                                   const SlotIndex::Visitor& visit);

}  // namespace terrace::internal
