// Every block that has a copy somewhere: its name, its tokens, and its copy in each place.
//
// A hash table with chains, all storage reserved once. A lookup compares key, tokens at full width
// and the parent's lineage, so that no collision of keys is ever a hit; blocks whose keys collide
// live side by side. Must never move bytes or choose victims.
// Thread rule: one caller at a time, except that name and tokens of a pinned block may be read from
// anywhere: they never change while it is in the table.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "index/record.hpp"
#include "terrace/events.hpp"
#include "terrace/key.hpp"

namespace terrace::internal {

using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = 0xffffffffu;
inline constexpr std::uint32_t kNoSlot = 0xffffffffu;

// A block's copy in one place.
struct Residency {
  std::uint32_t slot = kNoSlot;
  std::uint32_t pins = 0;  // leases, matches and movements that need it to stay
  BlockState state = BlockState::absent;
};

struct Block {
  ChainPoint self;
  ChainPoint parent;
  Digest root{};
  std::uint32_t depth = 0;
  BlockId parent_hint =
      kNoBlock;  // where the parent was; it may have left since: see BlockTable::parent_of()
  BlockId next_in_bucket = kNoBlock;
  std::array<Residency, kPlaceCount> at;
};

class BlockTable {
 public:
  BlockTable(std::uint32_t capacity, std::uint32_t block_tokens);

  // Returns: the block of `tokens` after `parent`, or kNoBlock.
  BlockId find(const BlockKey& key, const Digest& parent_lineage,
               std::span<const TokenId> tokens) const noexcept;
  // REQUIRES: find() says kNoBlock. Returns: the new block, absent everywhere; kNoBlock where the
  // table is full.
  BlockId insert(const RecordMeta& meta) noexcept;
  // REQUIRES: absent everywhere, no pins.
  void erase(BlockId id) noexcept;

  Block& operator[](BlockId id) noexcept { return blocks_[id]; }
  const Block& operator[](BlockId id) const noexcept { return blocks_[id]; }
  std::span<const TokenId> tokens(BlockId id) const noexcept {
    return {tokens_.data() + std::size_t{id} * block_tokens_, block_tokens_};
  }
  // Returns: the parent's block, if it is in the table still; kNoBlock.
  BlockId parent_of(BlockId id) const noexcept;
  // The block as a record names it.
  RecordMeta meta(BlockId id) const noexcept;

  std::uint32_t capacity() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  std::uint32_t size() const noexcept { return size_; }

 private:
  std::uint32_t bucket_of(const BlockKey& key) const noexcept {
    return static_cast<std::uint32_t>(key.low & (buckets_.size() - 1));
  }

  std::uint32_t block_tokens_;
  std::uint32_t size_ = 0;
  std::vector<Block> blocks_;
  std::vector<TokenId> tokens_;
  std::vector<BlockId> buckets_;  // size is a power of two
  BlockId free_ = kNoBlock;       // chained through next_in_bucket
};

}  // namespace terrace::internal
