// What a block is called: chained keys over token ids, from a root that is the model's identity.
//
//   root    = SHA-256 over tagged, length-prefixed fields of (format, identity, geometry, scope)
//   key     = XXH3-128 over (parent key, token ids)       -- finds a candidate, quickly
//   lineage = SHA-256 over (parent lineage, token ids)    -- says what the candidate is, for ever
//
// A hash match never suffices: on every hit the token ids are compared at full width, and the
// candidate's parent lineage with the lineage of the block matched before it. So no collision of
// keys, crafted or not, joins a block to another prefix. Keys are a pure function of content: equal
// in every process, build, host and locale.
// Thread rule: plain values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "terrace/identity.hpp"
#include "terrace/layout.hpp"

namespace terrace {

using TokenId = std::uint32_t;

struct BlockKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const BlockKey&, const BlockKey&) = default;
};

// A point in a chain of blocks: the root, or the block that ends here.
struct ChainPoint {
  BlockKey key;
  Digest lineage{};
  friend bool operator==(const ChainPoint&, const ChainPoint&) = default;
};

// Returns: the root of every chain of this identity and scope; identity_incomplete where a field is
// absent.
Result<ChainPoint> chain_root(const ModelIdentity& identity, const Layout& layout,
                              const Scope& scope = {});

// The key of the block of `tokens` after `parent`.
BlockKey block_key(const BlockKey& parent, std::span<const TokenId> tokens) noexcept;
// Key and lineage of that block.
ChainPoint chain_next(const ChainPoint& parent, std::span<const TokenId> tokens);

}  // namespace terrace
