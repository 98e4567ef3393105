// Every block that has a copy somewhere: its name, its tokens, and its copy in each place.
//
// All storage is reserved once. A lookup compares key, tokens at full width and the parent's lineage,
// so that no collision of keys is ever a hit; blocks whose keys collide live side by side. Must never
// move bytes or choose victims.
//
// Most lookups need no key. A block links to the child that was last asked for after it, and a child
// to its parent; each link is set only where the lineage has proved it, and goes with its block. Where
// both agree, the younger of the two was proved while both blocks were what they are now, so the child
// is the one: only its tokens are left to compare. A walk along links would wait for memory at every
// block, so each block also remembers who stood some blocks further on last time (a jump pointer: Roth
// and Sohi, 1999), and asks for that one's memory. That is a guess, and proves nothing.
//
// Thread rule: one caller at a time, except that name and tokens of a pinned block may be read from
// anywhere: they never change while it is in the table.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/prefetch.hpp"
#include "index/key_table.hpp"
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
  std::uint32_t pins : 29 = 0;  // leases, matches and movements that need it to stay
  bool wanted : 1 = false;      // it is to come here: in a list of BlockStore
  BlockState state : 2 = BlockState::absent;
};
static_assert(sizeof(Residency) == 8);

// Two cache lines: what a walk along links reads, then the proof.
struct alignas(64) Block {
  BlockKey key;
  BlockId parent = kNoBlock;  // where it was; it may have left since: see BlockTable::parent_of()
  BlockId child = kNoBlock;   // likewise, of the children the one that was last asked for
  BlockId ahead = kNoBlock;   // BlockTable::kAhead blocks further on, when somebody last went there
  std::uint32_t depth = 0;    // of a block that is not in the table: the next such one
  std::uint32_t root = 0;     // in the table of roots
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
  // Finds the blocks of `tokens` after `root`, one after another. `visit(i, id)` says whether to go
  // on. Ends at the first one that is not there.
  template <class Visit>
  void find_chain(const ChainPoint& root, std::span<const TokenId> tokens, const Visit& visit);
  // REQUIRES: find() says kNoBlock; `parent` is a block, or kNoBlock. Returns: the new block, absent
  // everywhere; kNoBlock where the table is full.
  BlockId insert(const RecordMeta& meta, BlockId parent) noexcept;
  // Links a block and its parent, where that is its parent.
  void link(BlockId parent, BlockId id) noexcept;
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
  // Returns: the parent's block, if the link still leads to it; kNoBlock.
  BlockId parent_of(BlockId id) const noexcept;
  // Returns: the parent's block, found by its name; kNoBlock.
  BlockId find_parent(BlockId id) const noexcept;
  // How many blocks ahead a walk asks for memory.
  static constexpr std::size_t kAhead = 16;
  // Says that who comes to `behind` will come to `id`, kAhead blocks further on. Either may be kNoBlock,
  // or have left.
  void note_ahead(BlockId behind, BlockId id) noexcept {
    if (behind != kNoBlock && blocks_[behind].ahead != id) blocks_[behind].ahead = id;
  }
  // Who finds or inserts the blocks of `chain` one after another calls this before each, for the memory
  // that these read first. Asks for that of kTurn blocks at once: every one lies in another page, and the
  // processor looks up several pages at a time.
  static constexpr std::size_t kTurn = 8;
  void prefetch_turn(std::span<const ChainPoint> chain, std::size_t at) const noexcept {
    if (at % kTurn != 0) return;
    const std::size_t end = std::min(at + 2 * kTurn, chain.size());
    for (std::size_t i = at == 0 ? 0 : at + kTurn; i < end; ++i) keys_.prefetch(chain[i].key);
  }
  // Asks for the memory that erase(id) and an insert() in its place will touch, beside that of a change
  // of state.
  void prefetch_replace(BlockId id) const noexcept {
    prefetch_line(&blocks_[id].lineage);
    prefetch_tokens(id);
    keys_.prefetch(blocks_[id].key);
  }
  // Asks for the memory that find_parent() will read; prefetch_lineage(id) a while before.
  void prefetch_lineage(BlockId id) const noexcept {
    prefetch_line(&parent_keys_[id]);
    prefetch_line(&blocks_[id].lineage);
  }
  void prefetch_parent(BlockId id) const noexcept { keys_.prefetch(parent_keys_[id]); }
  // Asks for the memory that a change of state reads: what moves for milliseconds is in no cache when it
  // arrives.
  void prefetch_move(BlockId id) const noexcept {
    prefetch_line(&blocks_[id]);
    prefetch_line(&parent_keys_[id]);
  }
  const BlockKey& parent_key(BlockId id) const noexcept { return parent_keys_[id]; }
  // The block as a record names it.
  RecordMeta meta(BlockId id) const noexcept;

  std::uint32_t capacity() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  std::uint32_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t kLine = 64;

  // What a walk reads of a block.
  void prefetch_step(BlockId id) const noexcept {
    if (id == kNoBlock) return;
    prefetch_line(&blocks_[id]);
    prefetch_tokens(id);
  }
  void prefetch_tokens(BlockId id) const noexcept {
    const auto bytes = std::as_bytes(this->tokens(id));
    for (std::size_t at = 0; at < bytes.size(); at += kLine) prefetch_line(&bytes[at]);
  }
  bool holds(BlockId id, std::span<const TokenId> tokens) const noexcept {
    return std::memcmp(this->tokens(id).data(), tokens.data(), tokens.size_bytes()) == 0;
  }
  // Returns: the child of `parent` with these tokens, if the links lead there; kNoBlock.
  BlockId follow(BlockId parent, std::span<const TokenId> tokens) const noexcept {
    const BlockId child = blocks_[parent].child;
    if (child == kNoBlock || blocks_[child].parent != parent || !holds(child, tokens))
      return kNoBlock;
    return child;
  }

  std::uint32_t block_tokens_;
  std::uint32_t size_ = 0;
  HugeVector<Block> blocks_;
  HugeVector<BlockKey> parent_keys_;  // apart: no lookup reads them
  RootTable roots_;
  HugeVector<TokenId> tokens_;
  KeyTable keys_;
  BlockId free_ = kNoBlock;
};

template <class Visit>
void BlockTable::find_chain(const ChainPoint& root, std::span<const TokenId> tokens,
                            const Visit& visit) {
  if (blocks_.empty()) return;
  std::array<BlockId, kAhead> last{};  // the blocks before this one
  BlockId parent = kNoBlock;
  for (std::size_t i = 0; (i + 1) * block_tokens_ <= tokens.size(); ++i) {
    const auto here = tokens.subspan(i * block_tokens_, block_tokens_);
    BlockId id = parent == kNoBlock ? kNoBlock : follow(parent, here);
    if (id == kNoBlock) {
      const ChainPoint before = parent == kNoBlock ? root : blocks_[parent].self();
      id = find(block_key(before.key, here), before.lineage, here);
      if (id == kNoBlock) return;
      if (parent != kNoBlock) link(parent, id);
    }
    prefetch_step(blocks_[id].ahead);
    BlockId& behind = last[i % kAhead];
    if (i >= kAhead) note_ahead(behind, id);
    behind = id;
    if (!visit(i, id)) return;
    parent = id;
  }
}

}  // namespace terrace::internal
