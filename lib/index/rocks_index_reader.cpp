// A look into a slot index that nobody has open; see slot_index.hpp. Must never write: what is
// damaged stays as it is, for whoever wants to know why.
// Thread rule: any thread; blocks.
#include "index/rocks_entries.hpp"
#include "index/rocks_options.hpp"
#include "index/slot_index.hpp"

namespace terrace::internal {

Result<bool> read_rocks_slot_index(const std::string& path, std::uint32_t entry_bytes,
                                   const SlotIndex::Visitor& visit) {
  std::unique_ptr<rocksdb::DB> database;
  bool complete = false;
  const auto status = guarded([&] {
    rocksdb::DB* opened = nullptr;
    auto result = rocksdb::DB::OpenForReadOnly(rocks_options_read_only(), path, &opened);
    database.reset(opened);
    if (!result.ok()) return result;
    complete = is_complete(*database);
    return visit_rocks_entries(*database, entry_bytes, visit);
  });
  if (status.ok()) return complete;
  if (status.IsIOError() && !status.IsPathNotFound()) {
    return fail(Code::io_error,
                "the slot index cannot be read: check the owner and mode of index/");
  }
  return fail(Code::corrupt, "the slot index is damaged");
}

}  // namespace terrace::internal
