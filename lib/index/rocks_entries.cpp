// See rocks_entries.hpp.
#include "index/rocks_entries.hpp"

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

std::uint32_t slot_of(const rocksdb::Slice& key) noexcept {
  std::uint32_t slot = 0;
  for (std::size_t i = 0; i < 4; ++i) slot = slot << 8 | static_cast<std::uint8_t>(key[i]);
  return slot;
}

}  // namespace

std::array<char, 4> rocks_key_of(std::uint32_t slot) noexcept {
  return {static_cast<char>(slot >> 24), static_cast<char>(slot >> 16),
          static_cast<char>(slot >> 8), static_cast<char>(slot)};
}

rocksdb::Status visit_rocks_entries(rocksdb::DB& database, std::uint32_t entry_bytes,
                                    const SlotIndex::Visitor& visit) {
  rocksdb::ReadOptions read;
  read.fill_cache = false;
  read.readahead_size = 1 * MiB;
  std::vector<std::uint64_t> aligned((entry_bytes + 7) / 8);
  const std::unique_ptr<rocksdb::Iterator> entry(database.NewIterator(read));
  for (entry->SeekToFirst(); entry->Valid(); entry->Next()) {
    const rocksdb::Slice value = entry->value();
    if (entry->key().size() != 4 || value.size() > entry_bytes) continue;
    std::memcpy(aligned.data(), value.data(), value.size());
    visit(slot_of(entry->key()), std::as_bytes(std::span(aligned)).first(value.size()));
  }
  return entry->status();
}

bool is_complete(rocksdb::DB& database) {
  std::string ignored;
  return database.Get(rocksdb::ReadOptions(), kCompleteKey, &ignored).ok();
}

}  // namespace terrace::internal
