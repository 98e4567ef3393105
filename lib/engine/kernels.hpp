// The arithmetic that the matrix library does not do, as a table of functions for one instruction
// set.
//
// kernels_isa.cpp is compiled once for each instruction set; best_kernels() picks by what the
// processor has. No kernel allocates or locks. The plain-loop twins they are tested against are in
// tests/engine. Called by the forward pass.
// Thread rule: pure functions over the memory they are given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::engine {

// The paged KV of one layer and one KV head. Token t lies in block t / block_tokens at row t %
// block_tokens:
//   K row: blocks[..] + k_offset + row * head_dim * 4, V row: v_bytes further.
struct PagedRows {
  const std::byte* const* blocks;
  std::uint32_t block_tokens;
  std::size_t k_offset;  // bytes
  std::size_t v_bytes;   // bytes from a token's K row to its V row
};

// A few query rows that share a KV head: row r is head r % group of token r / group. For each row
//   out = sum_t softmax_t(scale * q . K_t) V_t   over t in [0, position of the row].
struct AttentionPanel {
  PagedRows kv;
  std::uint32_t head_dim;
  std::uint32_t group;           // query heads per KV head
  std::uint32_t first_row;       // rows [first_row, first_row + rows) of the chunk
  std::uint32_t rows;            // at most Kernels::panel_rows
  std::uint32_t first_position;  // of the chunk's token 0
  float scale;
  const float* q;        // the group's first head of token 0; heads are head_dim apart
  std::size_t q_stride;  // floats from token to token
  float* out;            // likewise
  std::size_t out_stride;
  float* scratch;  // Kernels::scratch_floats(head_dim)
};

struct Kernels {
  const char* name;  // of the instruction set
  std::uint32_t panel_rows;
  std::size_t (*scratch_floats)(std::uint32_t head_dim);
  void (*attend)(const AttentionPanel& panel);
  // out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; out may be x
  void (*rms_norm)(const float* x, const float* weight, float eps, float* out, std::size_t size);
  // out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
  void (*silu_multiply)(const float* gate, const float* up, float* out, std::size_t size);
  // Rotates one head by its position: pairs (i, i + half) by the angles whose cosines and sines are
  // given [half].
  void (*rotate)(const float* head, const float* cosines, const float* sines, float* out,
                 std::size_t half);
};

// Every table that this processor can run, best first; the last one is always the portable one.
// Returns: a null-terminated list that lives for ever.
const Kernels* const* usable_kernels() noexcept;
inline const Kernels& best_kernels() noexcept {
  return *usable_kernels()[0];
}

}  // namespace terrace::engine
