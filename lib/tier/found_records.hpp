// What recovery has found in the directories of a tier: headers of records, by slot, before it is
// decided which of them count.
//
// Takes about 300 bytes a record, for as long as recovery takes. Called by: NvmeStore, NvmeTier.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "index/record.hpp"

namespace terrace::internal {

class FoundRecords {
 public:
  explicit FoundRecords(const RecordFormat& format) : format_(format) {}

  // Returns: whether `header` is one of a record of ours.
  bool add(std::uint32_t slot, std::span<const std::byte> header);
  // Forgets what was found in `slot` or above.
  void forget_from(std::uint32_t slot);
  // Sorts by sequence, and takes out all but the newest record of a lineage.
  // Returns: the slots of those taken out.
  std::vector<std::uint32_t> keep_newest();

  // Calls `visit` once a record kept, in order of their sequence. REQUIRES: keep_newest().
  using Visitor = std::function<void(std::uint32_t slot, const RecordMeta& meta)>;
  void visit(const Visitor& visit);

  // "" or how many headers were refused, and why.
  std::string refusals() const;

 private:
  struct Entry {
    RecordMeta meta;  // its span keeps the length only, until visit()
    std::uint32_t slot;
    std::size_t first_token;
    bool newest = true;
  };

  const RecordFormat& format_;
  std::vector<Entry> entries_;
  std::vector<TokenId> tokens_;
  std::map<Verdict, std::uint32_t> refused_;
};

}  // namespace terrace::internal
