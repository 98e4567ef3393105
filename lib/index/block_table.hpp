// Every block that has a copy somewhere: its name, its tokens, and its copy in each place.
//
// A hash table with chains, all storage reserved once. A lookup compares key, tokens at full width
// and the parent's lineage, so that no collision of keys is ever a hit; blocks whose keys collide
// live side by side. Must never move bytes or choose victims.
// Thread rule: one caller at a time, except that name and tokens of a pinned block may be read from
// anywhere: they never change while it is in the table.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "index/record.hpp"
#include "index/root_table.hpp"
#include "io/huge_vector.hpp"
#include "terrace/events.hpp"
#include "terrace/key.hpp"

namespace terrace::internal {

using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = 0xffffffffu;
inline constexpr std::uint32_t kNoSlot = 0xffffffffu;

// A block's copy in one place.
struct Residency {
  std::uint32_t slot = kNoSlot;
  std::uint32_t pins : 30 = 0;  // leases, matches and movements that need it to stay
  BlockState state : 2 = BlockState::absent;
};
static_assert(sizeof(Residency) == 8);

// Two cache lines, in the order in which a match reads them: what it looks for, then the proof.
struct alignas(64) Block {
  BlockKey key;
  BlockId next_in_bucket = kNoBlock;
  // Where the parent was; it may have left since: see BlockTable::parent_of().
  BlockId parent_hint = kNoBlock;
  std::uint32_t depth = 0;
  std::uint32_t root = 0;  // in the table of roots
  std::array<Residency, kPlaceCount> at;
  alignas(64) Digest lineage{};
  Digest parent_lineage{};

  ChainPoint self() const noexcept { return {key, lineage}; }
};
static_assert(sizeof(Block) == 128);

class BlockTable {
 public:
  BlockTable(std::uint32_t capacity, std::uint32_t block_tokens);

  // Returns: the block of `tokens` after `parent`, or kNoBlock.
  BlockId find(const BlockKey& key, const Digest& parent_lineage,
               std::span<const TokenId> tokens) const noexcept;
  // Finds the blocks of `keys`, over `tokens` after `parent_lineage`, one after another, with the
  // memory of those ahead on its way already: a table of a million blocks is in no cache.
  // `visit(i, id)` says whether to go on. Ends at the first one that is not there.
  template <class Visit>
  void find_chain(std::span<const BlockKey> keys, Digest parent_lineage,
                  std::span<const TokenId> tokens, const Visit& visit) const;
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
  // Whether insert() can take a record like this one.
  bool takes(const RecordMeta& meta) const noexcept {
    return free_ != kNoBlock && meta.tokens.size() == block_tokens_;
  }
  // Returns: the parent's block, if the hint still leads to it; kNoBlock.
  BlockId parent_of(BlockId id) const noexcept;
  // Returns: the parent's block, found by its name; kNoBlock.
  BlockId find_parent(BlockId id) const noexcept;
  // Asks for the memory that find_parent() will read; prefetch(id) a while before.
  void prefetch(BlockId id) const noexcept {
    __builtin_prefetch(&parent_keys_[id]);
    __builtin_prefetch(&blocks_[id].lineage);
  }
  void prefetch_parent(BlockId id) const noexcept { prefetch_bucket(parent_keys_[id]); }
  const BlockKey& parent_key(BlockId id) const noexcept { return parent_keys_[id]; }
  // The block as a record names it.
  RecordMeta meta(BlockId id) const noexcept;

  std::uint32_t capacity() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  std::uint32_t size() const noexcept { return size_; }

 private:
  std::uint32_t bucket_of(const BlockKey& key) const noexcept {
    return static_cast<std::uint32_t>(key.low & (buckets_.size() - 1));
  }

  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kBucketsAhead = 64;
  static constexpr std::size_t kBlocksAhead = 32;

  void prefetch_bucket(const BlockKey& key) const noexcept {
    __builtin_prefetch(&buckets_[bucket_of(key)]);
  }
  // REQUIRES: the bucket was prefetched a while ago, or this waits for it.
  void prefetch_block(const BlockKey& key) const noexcept {
    const BlockId id = buckets_[bucket_of(key)];
    if (id == kNoBlock) return;
    const auto* block = reinterpret_cast<const std::byte*>(&blocks_[id]);
    __builtin_prefetch(block);
    __builtin_prefetch(block + kLine);
    const auto bytes = std::as_bytes(this->tokens(id));
    for (std::size_t at = 0; at < bytes.size(); at += kLine) __builtin_prefetch(&bytes[at]);
  }

  std::uint32_t block_tokens_;
  std::uint32_t size_ = 0;
  HugeVector<Block> blocks_;
  std::vector<BlockKey> parent_keys_;  // apart: no lookup reads them
  RootTable roots_;
  HugeVector<TokenId> tokens_;
  HugeVector<BlockId> buckets_;  // size is a power of two
  BlockId free_ = kNoBlock;      // chained through next_in_bucket
};

template <class Visit>
void BlockTable::find_chain(std::span<const BlockKey> keys, Digest parent_lineage,
                            std::span<const TokenId> tokens, const Visit& visit) const {
  if (blocks_.empty()) return;
  for (std::size_t i = 0; i < std::min(keys.size(), kBucketsAhead); ++i) prefetch_bucket(keys[i]);
  for (std::size_t i = 0; i < std::min(keys.size(), kBlocksAhead); ++i) prefetch_block(keys[i]);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + kBucketsAhead < keys.size()) prefetch_bucket(keys[i + kBucketsAhead]);
    if (i + kBlocksAhead < keys.size()) prefetch_block(keys[i + kBlocksAhead]);
    const BlockId id =
        find(keys[i], parent_lineage, tokens.subspan(i * block_tokens_, block_tokens_));
    if (id == kNoBlock) return;
    parent_lineage = blocks_[id].lineage;
    if (!visit(i, id)) return;
  }
}

}  // namespace terrace::internal
