// The forward pass of a Llama-architecture decoder over paged KV.
//
// Computes float32 logits; reads and writes KV straight in the caller's blocks, through the block
// table. Never keeps a pointer into a block beyond run(), and never reads a block of a layer before
// the gate has let it. Called by the session.
// Thread rule: one run() at a time; `weights` are shared and const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/weights.hpp"

namespace terrace::engine {

// One sequence's KV as the forward pass sees it: block b holds tokens [b * block_tokens, (b + 1) *
// block_tokens), in float32 as [layer][K, V][kv_head][token][head_dim], one contiguous run a block,
// 4-byte aligned.
struct PagedKv {
  std::span<std::byte* const> blocks;
  std::uint32_t block_tokens = 16;
};

// Bytes a block has for a model of `config`.
std::size_t block_bytes(const ModelConfig& config, std::uint32_t block_tokens) noexcept;

// Tells when the KV of earlier tokens has arrived.
class LayerGate {
 public:
  virtual ~LayerGate() = default;
  // Returns when layer `layer` of every block that holds a token before `start` may be read. Called
  // once a layer and run, in the order of the layers, before the first read, on the thread that
  // called run(). May throw.
  virtual void wait(std::uint32_t layer) = 0;
};

struct ForwardOptions {
  unsigned threads = 0;              // with the caller's own; 0: one a core
  std::uint32_t chunk_tokens = 512;  // tokens that pass through all layers together
};

class Forward {
 public:
  // `weights` must outlive this. Throws std::invalid_argument: chunk_tokens is 0.
  explicit Forward(const Weights& weights, ForwardOptions options = {});
  ~Forward();

  // Computes `tokens` at positions [start, start + tokens.size()): writes their K (after RoPE) and
  // V into `kv` and returns the logits of the last one, [vocab], valid until the next run().
  // REQUIRES: kv has blocks up to position start + tokens.size() - 1; those of tokens before
  // `start` hold their KV, or will once `gate` (may be null) has let the layer. Throws
  // std::invalid_argument: no tokens, an id beyond the vocabulary, a position beyond the context or
  // the blocks.
  std::span<const float> run(std::span<const std::uint32_t> tokens, std::uint32_t start,
                             const PagedKv& kv, LayerGate* gate = nullptr);

 private:
  class Pass;
  std::unique_ptr<Pass> pass_;
};

}  // namespace terrace::engine
