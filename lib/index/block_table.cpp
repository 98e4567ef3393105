#include "index/block_table.hpp"

#include <algorithm>
#include <bit>

#include "base/assert.hpp"

namespace terrace::internal {

BlockTable::BlockTable(std::uint32_t capacity, std::uint32_t block_tokens)
    : block_tokens_(block_tokens),
      blocks_(capacity),
      tokens_(std::size_t{capacity} * block_tokens),
      buckets_(std::bit_ceil(std::max<std::size_t>(capacity, 1)), kNoBlock) {
  for (BlockId id = capacity; id-- > 0;) {
    blocks_[id].next_in_bucket = free_;
    free_ = id;
  }
}

BlockId BlockTable::find(const BlockKey& key, const Digest& parent_lineage,
                         std::span<const TokenId> tokens) const noexcept {
  if (blocks_.empty() || tokens.size() != block_tokens_) return kNoBlock;
  for (BlockId id = buckets_[bucket_of(key)]; id != kNoBlock; id = blocks_[id].next_in_bucket) {
    const Block& block = blocks_[id];
    if (block.self.key == key && std::ranges::equal(this->tokens(id), tokens) &&
        block.parent.lineage == parent_lineage) {
      return id;
    }
  }
  return kNoBlock;
}

BlockId BlockTable::insert(const RecordMeta& meta) noexcept {
  TERRACE_ASSERT(meta.tokens.size() == block_tokens_, meta.tokens.size());
  if (free_ == kNoBlock) return kNoBlock;
  const BlockId id = free_;
  free_ = blocks_[id].next_in_bucket;
  Block& block = blocks_[id];
  block = Block{};
  block.self = meta.self;
  block.parent = meta.parent;
  block.root = meta.root;
  block.depth = meta.depth;
  std::ranges::copy(meta.tokens,
                    tokens_.begin() + static_cast<std::ptrdiff_t>(std::size_t{id} * block_tokens_));
  BlockId& bucket = buckets_[bucket_of(meta.self.key)];
  block.next_in_bucket = bucket;
  bucket = id;
  ++size_;
  return id;
}

void BlockTable::erase(BlockId id) noexcept {
  Block& block = blocks_[id];
  for (const Residency& residency : block.at) {
    TERRACE_ASSERT(residency.state == BlockState::absent && residency.pins == 0, id);
  }
  block.self.lineage = {};  // no hint of a child points here any more
  BlockId* link = &buckets_[bucket_of(block.self.key)];
  while (*link != id) {
    TERRACE_ASSERT(*link != kNoBlock, id);
    link = &blocks_[*link].next_in_bucket;
  }
  *link = block.next_in_bucket;
  block.next_in_bucket = free_;
  free_ = id;
  --size_;
}

BlockId BlockTable::parent_of(BlockId id) const noexcept {
  const Block& block = blocks_[id];
  const BlockId hint = block.parent_hint;
  return hint != kNoBlock && blocks_[hint].self.lineage == block.parent.lineage ? hint : kNoBlock;
}

RecordMeta BlockTable::meta(BlockId id) const noexcept {
  const Block& block = blocks_[id];
  return RecordMeta{.root = block.root,
                    .self = block.self,
                    .parent = block.parent,
                    .depth = block.depth,
                    .tokens = tokens(id),
                    .incarnation = 0,
                    .sequence = 0};
}

}  // namespace terrace::internal
