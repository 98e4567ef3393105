// All that can ever be asked for under one seed: a few prompts, of two models and three scopes, that
// share prefixes as the branches of a tree, and the right bytes of every block of theirs.
//
// Bytes are a function of the chain, so that whatever comes back can be judged, and each block has a
// number, its name in all oracles.
// Thread rule: one thread.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "sim/random.hpp"
#include "terrace/cache.hpp"

namespace terrace::sim {

using BlockNumber = std::uint32_t;

struct Chain {
  std::uint32_t model = 0;
  Scope scope;
  std::vector<TokenId> tokens;
  ChainPoint root;
  std::vector<BlockNumber> blocks;
};

struct KnownBlock {
  ChainPoint point;
  ChainPoint parent;
  std::uint32_t depth = 0;
  std::vector<std::byte> bytes;
  // Somebody has given it to the cache, in this life or an earlier one.
  bool committed = false;
};

class Universe {
 public:
  explicit Universe(Random random);

  const Layout& layout() const { return layout_; }
  std::uint32_t block_tokens() const { return layout_.block_tokens; }
  std::uint64_t record_bytes() const;  // as a slot of DRAM or NVMe takes
  const std::vector<ModelIdentity>& models() const { return models_; }
  const std::vector<Chain>& chains() const { return chains_; }

  std::uint32_t block_count() const { return static_cast<std::uint32_t>(blocks_.size()); }
  KnownBlock& block(BlockNumber number) { return blocks_[number]; }
  const KnownBlock& block(BlockNumber number) const { return blocks_[number]; }
  // Returns: the block that an event names; nothing where there is none.
  std::optional<BlockNumber> find(const BlockKey& key, const BlockKey& parent,
                                  std::uint32_t depth) const;
  // Whether keys name blocks: not so where they are cut short.
  bool has_collisions() const { return names_.size() < blocks_.size(); }

 private:
  using Name = std::array<std::uint64_t, 5>;
  static Name name_of(const BlockKey& key, const BlockKey& parent, std::uint32_t depth);
  Chain grow(Random& random);
  void number_blocks(Chain& chain);

  Layout layout_;
  std::vector<ModelIdentity> models_;
  std::vector<Chain> chains_;
  std::vector<KnownBlock> blocks_;
  std::map<Digest, BlockNumber> by_lineage_;
  std::map<Name, BlockNumber> names_;
};

}  // namespace terrace::sim
