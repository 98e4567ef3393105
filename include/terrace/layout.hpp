// How the KV of one block lies in memory: a list of groups, each a run of layers with one shape.
//
// A block is one contiguous run of bytes over all layers, so that a block is one copy and one layer
// is one slice of it. Within a layer the order at rest is [K, V][kv_head][token][head_dim]: a layer
// and a range of heads are contiguous. Geometry (what the numbers mean) is part of every key; order
// and padding (how they lie) are the layout digest, which is part of the record: a mismatch there
// is a miss.
// Thread rule: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/identity.hpp"
#include "terrace/result.hpp"

namespace terrace {

enum class KvDtype : std::uint8_t { f32 = 1, f16 = 2, bf16 = 3, fp8_e4m3 = 4, fp8_e5m2 = 5 };
enum class GroupKind : std::uint8_t {
  full_attention = 1,  // K and V of every token
  sliding_window = 2,  // as full, but only the last `window` tokens are ever read
  latent = 3,          // MLA: one compressed vector a token, no separate V
  sidecar = 4,         // bytes beside the KV that must travel with it: FP8 scales, indexer keys
  // opaque state at a block boundary (recurrent layers); variable up to a cap
  boundary_snapshot = 5,
};
enum class AtRestOrder : std::uint8_t { layer_kv_head_token_dim = 1 };

std::uint32_t bytes_of(KvDtype dtype) noexcept;
const char* to_string(KvDtype dtype) noexcept;
const char* to_string(GroupKind kind) noexcept;
const char* to_string(AtRestOrder order) noexcept;

// layers [first_layer, first_layer + layer_count) of the model, all of one shape.
struct Group {
  GroupKind kind = GroupKind::full_attention;
  std::uint32_t first_layer = 0;
  std::uint32_t layer_count = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t window_tokens = 0;    // sliding_window only
  std::uint32_t bytes_per_token = 0;  // latent and sidecar only: bytes a token a layer
};

// bytes [offset, offset + bytes) of a block
struct Slice {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct Layout {
  std::uint32_t block_tokens = 16;
  KvDtype dtype = KvDtype::bf16;
  AtRestOrder order = AtRestOrder::layer_kv_head_token_dim;
  std::vector<Group> groups;

  // The common case: one group of full attention.
  static Layout full(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim,
                     KvDtype dtype, std::uint32_t block_tokens = 16);

  // Returns: success, or invalid_argument with the field that is wrong; unsupported for a group
  // kind that this version can express but not yet store (everything but full_attention).
  Result<void> validate() const;

  std::uint32_t layer_count() const noexcept;
  std::uint64_t block_bytes() const noexcept;
  // The bytes of layer `layer` (0 to layer_count() - 1, in the order of the groups), K then V.
  Slice layer_slice(std::uint32_t layer) const noexcept;
  // The K (component 0) or V (component 1) half of a layer.
  Slice component_slice(std::uint32_t layer, std::uint32_t component) const noexcept;

  Digest geometry_digest() const;  // part of every key
  Digest layout_digest() const;    // part of every record
};

// A layout in words, for files that must say for themselves how their blocks lie; a field of a
// group that is 0 is left out:
//   block_tokens 16
//   dtype bf16
//   order layer_kv_head_token_dim
//   group full_attention layer_count 32 kv_heads 8 head_dim 128
std::string format_layout(const Layout& layout);
// Returns: the layout, valid, of which format_layout() makes exactly `text`; otherwise
// invalid_argument, or unsupported as Layout::validate().
Result<Layout> parse_layout(std::string_view text);

}  // namespace terrace
