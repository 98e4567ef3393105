// From the records that a start finds on NVMe to blocks in the block store.
//
// Records come by slot, and go into the block table at once, so that a million of them takes no
// memory beside it. What depends on their order waits for finish(): of two records of one block the
// newer counts, parents come before children, cold before warm.
// Thread rule: one thread, before anybody else uses the store.
#pragma once

#include <cstdint>
#include <vector>

#include "move/block_store.hpp"
#include "tier/record_sink.hpp"

namespace terrace::internal {

class Recovery final : public RecordSink {
 public:
  explicit Recovery(BlockStore& store) : store_(store) {
    entries_.reserve(store.pool(kNvme0).capacity());  // given back whole, unlike what grew
  }

  void add(std::uint32_t slot, const RecordMeta& meta) override;
  void forget_from(std::uint32_t slot) override;

  // Makes every block resident on NVMe. Returns: the slots whose records are of no use.
  std::vector<std::uint32_t> finish();
  std::uint64_t sequence_max() const noexcept { return sequence_max_; }

 private:
  struct Entry {
    std::uint64_t sequence;
    BlockId block;
    std::uint32_t slot;
  };

  void drop_older();

  BlockStore& store_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> useless_;
  std::uint64_t sequence_max_ = 0;
};

}  // namespace terrace::internal
