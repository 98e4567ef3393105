#include "index/block_table.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "base/same_bytes.hpp"

namespace terrace::internal {

BlockTable::BlockTable(std::uint32_t capacity, std::uint32_t block_tokens)
    : block_tokens_(block_tokens),
      blocks_(capacity),
      parent_keys_(capacity),
      roots_(capacity),
      tokens_(std::size_t{capacity} * block_tokens),
      keys_(capacity) {
  for (BlockId id = capacity; id-- > 0;) {
    blocks_[id].depth = free_;
    free_ = id;
  }
}

BlockId BlockTable::find(const BlockKey& key, const Digest& parent_lineage,
                         std::span<const TokenId> tokens) const noexcept {
  if (blocks_.empty() || tokens.size() != block_tokens_) return kNoBlock;
  return keys_.find(key, [&](BlockId id) {
    const Block& block = blocks_[id];
    prefetch_line(&block.lineage);  // with the key, not after it
    prefetch_tokens(id);
    return block.key == key && same_bytes(block.parent_lineage, parent_lineage) &&
           holds(id, tokens);
  });
}

BlockId BlockTable::insert(const RecordMeta& meta, BlockId parent) noexcept {
  TERRACE_ASSERT(meta.tokens.size() == block_tokens_, meta.tokens.size());
  if (free_ == kNoBlock) return kNoBlock;
  const BlockId id = free_;
  free_ = blocks_[id].depth;
  Block& block = blocks_[id];
  block = Block{};
  block.key = meta.self.key;
  block.lineage = meta.self.lineage;
  block.parent_lineage = meta.parent.lineage;
  block.root = roots_.acquire(meta.root);
  block.depth = meta.depth;
  parent_keys_[id] = meta.parent.key;
  std::ranges::copy(meta.tokens,
                    tokens_.begin() + static_cast<std::ptrdiff_t>(std::size_t{id} * block_tokens_));
  keys_.insert(meta.self.key, id);
  ++size_;
  if (parent != kNoBlock) link(parent, id);
  return id;
}

void BlockTable::link(BlockId parent, BlockId id) noexcept {
  if (!same_bytes(blocks_[parent].lineage, blocks_[id].parent_lineage)) return;
  blocks_[id].parent = parent;
  blocks_[parent].child = id;
}

void BlockTable::erase(BlockId id) noexcept {
  Block& block = blocks_[id];
  for (const Residency& residency : block.at) {
    TERRACE_ASSERT(residency.state == BlockState::absent && residency.pins == 0, id);
    TERRACE_ASSERT(!residency.wanted, id);
  }
  block.lineage = {};       // no link of a child leads here any more,
  block.parent = kNoBlock;  // and none of a parent
  roots_.release(block.root);
  keys_.erase(block.key, id);
  block.depth = free_;
  free_ = id;
  --size_;
}

BlockId BlockTable::parent_of(BlockId id) const noexcept {
  const Block& block = blocks_[id];
  const BlockId parent = block.parent;
  const bool is_there =
      parent != kNoBlock && same_bytes(blocks_[parent].lineage, block.parent_lineage);
  return is_there ? parent : kNoBlock;
}

BlockId BlockTable::find_parent(BlockId id) const noexcept {
  const BlockKey& key = parent_keys_[id];
  const Digest& lineage = blocks_[id].parent_lineage;
  return keys_.find(key, [&](BlockId parent) {
    return blocks_[parent].key == key && same_bytes(blocks_[parent].lineage, lineage);
  });
}

RecordMeta BlockTable::meta(BlockId id) const noexcept {
  const Block& block = blocks_[id];
  return RecordMeta{.root = roots_[block.root],
                    .self = block.self(),
                    .parent = {parent_keys_[id], block.parent_lineage},
                    .depth = block.depth,
                    .tokens = tokens(id),
                    .incarnation = 0,
                    .sequence = 0};
}

}  // namespace terrace::internal
