// How the slot index lies in RocksDB: the slot's number is the key, big-endian so that iteration
// goes by slot, and the header of its record the value. One more key says that nothing is missing.
//
// Called by: rocks_slot_index.cpp, rocks_index_reader.cpp.
// Thread rule: as rocksdb::DB.
#pragma once

#include <rocksdb/db.h>

#include <array>
#include <cstdint>
#include <exception>

#include "index/slot_index.hpp"

namespace terrace::internal {

inline constexpr char kCompleteKey[] = "complete";  // not four bytes long, so never a slot

std::array<char, 4> rocks_key_of(std::uint32_t slot) noexcept;

// Visits every entry, by slot, of at most entry_bytes.
rocksdb::Status visit_rocks_entries(rocksdb::DB& database, std::uint32_t entry_bytes,
                                    const SlotIndex::Visitor& visit);
bool is_complete(rocksdb::DB& database);

// RocksDB reports by Status, but its allocations and parsers may throw; nothing escapes from here.
template <class Call>
rocksdb::Status guarded(Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return rocksdb::Status::Aborted(error.what());
  }
}

}  // namespace terrace::internal
