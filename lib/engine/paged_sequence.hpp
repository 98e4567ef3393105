// One sequence's KV in the cache's HBM arena: the prefix that was there, and the blocks being
// computed after it.
//
// Knows leases and blocks, no tokens beyond their number, and no model. Never holds more than one
// write lease: what is full is committed before more is reserved. Called by the session.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward.hpp"
#include "terrace/cache.hpp"

namespace terrace::engine {

class PagedSequence {
 public:
  // `cache` and `model` outlive this. `prefix` is the lease of a fetch, perhaps of no blocks.
  PagedSequence(const Cache& cache, const Model& model, ReadLease prefix);

  // Makes room for `tokens` tokens in all. REQUIRES: room for more is asked for only when all there
  // is was committed. Returns: success; no_space; closed.
  Result<void> reserve(std::uint32_t tokens);
  // Publishes every whole block of `computed`, the tokens of this sequence whose KV is complete.
  // Returns: success; invalid_argument; closed.
  Result<void> commit(std::span<const TokenId> computed);

  // Valid until the next reserve().
  PagedKv kv() const noexcept { return {blocks_, block_tokens_}; }

 private:
  const Cache& cache_;
  const Model& model_;
  const std::uint32_t block_tokens_;
  ReadLease prefix_;                // blocks [0, n): cached, or computed here and committed
  WriteLease fresh_;                // the blocks after them
  std::vector<std::byte*> blocks_;  // where each block lies: the block table
};

}  // namespace terrace::engine
