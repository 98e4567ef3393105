// See terrace/layout.hpp.
#include "terrace/layout.hpp"

#include <algorithm>

#include "base/tagged_hash.hpp"

namespace terrace {
namespace {

// Bounds of one field, far above any model known, so that products of fields stay within 64 bits.
constexpr std::uint32_t kBlockTokensMax = 4096;
constexpr std::uint32_t kLayersMax = 1U << 16;
constexpr std::uint32_t kHeadsMax = 1U << 16;
constexpr std::uint32_t kHeadDimMax = 1U << 16;
constexpr std::uint64_t kBlockBytesMax = std::uint64_t{1}
                                         << 30;  // one I/O request counts its bytes in 32 bits

bool has_two_components(GroupKind kind) noexcept {
  return kind == GroupKind::full_attention || kind == GroupKind::sliding_window;
}

std::uint64_t layer_bytes(const Layout& layout, const Group& group) noexcept {
  if (!has_two_components(group.kind))
    return std::uint64_t{group.bytes_per_token} * layout.block_tokens;
  return std::uint64_t{2} * group.kv_heads * layout.block_tokens * group.head_dim *
         bytes_of(layout.dtype);
}

struct LayerPlace {
  const Group* group = nullptr;  // null: the layout has no such layer
  Slice slice;
};

LayerPlace locate(const Layout& layout, std::uint32_t layer) noexcept {
  std::uint64_t offset = 0;
  for (const Group& group : layout.groups) {
    const std::uint64_t bytes = layer_bytes(layout, group);
    if (layer < group.layer_count) return {&group, {offset + layer * bytes, bytes}};
    layer -= group.layer_count;
    offset += group.layer_count * bytes;
  }
  return {nullptr, {offset, 0}};
}

bool overlap(const Group& a, const Group& b) noexcept {
  return a.first_layer < std::uint64_t{b.first_layer} + b.layer_count &&
         b.first_layer < std::uint64_t{a.first_layer} + a.layer_count;
}

Result<void> validate_kind(const Group& group) {
  switch (group.kind) {
    case GroupKind::full_attention:
      return {};
    case GroupKind::sliding_window:
    case GroupKind::latent:
    case GroupKind::sidecar:
    case GroupKind::boundary_snapshot:
      return fail(Code::unsupported,
                  "layout.groups: this version stores groups of kind full_attention only");
  }
  return fail(Code::invalid_argument, "layout.groups: kind is none of GroupKind's values");
}

Result<void> validate_group(const Group& group) {
  if (group.layer_count == 0 || group.layer_count > kLayersMax || group.first_layer > kLayersMax) {
    return fail(Code::invalid_argument,
                "layout.groups: layer_count must be 1 to 65536, first_layer at most 65536");
  }
  if (auto kind = validate_kind(group); !kind) return kind;
  if (group.kv_heads == 0 || group.kv_heads > kHeadsMax) {
    return fail(Code::invalid_argument, "layout.groups: kv_heads must be 1 to 65536");
  }
  if (group.head_dim == 0 || group.head_dim > kHeadDimMax) {
    return fail(Code::invalid_argument, "layout.groups: head_dim must be 1 to 65536");
  }
  if (group.window_tokens != 0 || group.bytes_per_token != 0) {
    return fail(
        Code::invalid_argument,
        "layout.groups: window_tokens and bytes_per_token must be 0 in a full_attention group");
  }
  return {};
}

Result<void> validate_disjoint(const std::vector<Group>& groups) {
  std::uint64_t layers = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    layers += groups[i].layer_count;
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(groups[i], groups[j])) {
        return fail(Code::invalid_argument,
                    "layout.groups: a layer is in two groups; put each layer into one");
      }
    }
  }
  if (layers > kLayersMax)
    return fail(Code::invalid_argument, "layout.groups: more than 65536 layers in all");
  return {};
}

}  // namespace

std::uint32_t bytes_of(KvDtype dtype) noexcept {
  switch (dtype) {
    case KvDtype::f32:
      return 4;
    case KvDtype::f16:
    case KvDtype::bf16:
      return 2;
    case KvDtype::fp8_e4m3:
    case KvDtype::fp8_e5m2:
      return 1;
  }
  return 0;
}

const char* to_string(KvDtype dtype) noexcept {
  switch (dtype) {
    case KvDtype::f32:
      return "f32";
    case KvDtype::f16:
      return "f16";
    case KvDtype::bf16:
      return "bf16";
    case KvDtype::fp8_e4m3:
      return "fp8_e4m3";
    case KvDtype::fp8_e5m2:
      return "fp8_e5m2";
  }
  return "unknown";
}

Layout Layout::full(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t head_dim,
                    KvDtype dtype, std::uint32_t block_tokens) {
  Group group;
  group.layer_count = layers;
  group.kv_heads = kv_heads;
  group.head_dim = head_dim;
  Layout layout;
  layout.block_tokens = block_tokens;
  layout.dtype = dtype;
  layout.groups = {group};
  return layout;
}

Result<void> Layout::validate() const {
  if (block_tokens == 0 || block_tokens > kBlockTokensMax) {
    return fail(Code::invalid_argument, "layout.block_tokens must be 1 to 4096");
  }
  if (bytes_of(dtype) == 0)
    return fail(Code::invalid_argument, "layout.dtype is none of KvDtype's values");
  if (order != AtRestOrder::layer_kv_head_token_dim) {
    return fail(Code::invalid_argument, "layout.order is none of AtRestOrder's values");
  }
  // 65536 groups of one layer are legal on paper; the quadratic check for overlaps below wants a
  // bound.
  if (groups.empty() || groups.size() > 1024) {
    return fail(Code::invalid_argument, "layout.groups must hold 1 to 1024 groups");
  }
  for (const Group& group : groups) {
    if (auto valid = validate_group(group); !valid) return valid;
  }
  if (auto disjoint = validate_disjoint(groups); !disjoint) return disjoint;
  if (block_bytes() > kBlockBytesMax) {
    return fail(Code::invalid_argument,
                "layout: a block is larger than 1 GiB; use fewer block_tokens");
  }
  return {};
}

std::uint32_t Layout::layer_count() const noexcept {
  std::uint32_t count = 0;
  for (const Group& group : groups) count += group.layer_count;
  return count;
}

std::uint64_t Layout::block_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Group& group : groups) bytes += group.layer_count * layer_bytes(*this, group);
  return bytes;
}

Slice Layout::layer_slice(std::uint32_t layer) const noexcept {
  return locate(*this, layer).slice;
}

Slice Layout::component_slice(std::uint32_t layer, std::uint32_t component) const noexcept {
  const LayerPlace place = locate(*this, layer);
  if (place.group == nullptr) return place.slice;
  const std::uint32_t components = has_two_components(place.group->kind) ? 2 : 1;
  if (component >= components) return {place.slice.offset + place.slice.bytes, 0};
  const std::uint64_t bytes = place.slice.bytes / components;
  return {place.slice.offset + component * bytes, bytes};
}

Digest Layout::geometry_digest() const {
  internal::TaggedHash hash("terrace.geometry.v1");
  hash.put("block_tokens", block_tokens).put("dtype", static_cast<std::uint32_t>(dtype));
  hash.put("groups", groups.size());
  for (const Group& group : groups) {
    hash.put("kind", static_cast<std::uint32_t>(group.kind))
        .put("first_layer", group.first_layer)
        .put("layer_count", group.layer_count)
        .put("kv_heads", group.kv_heads)
        .put("head_dim", group.head_dim)
        .put("window_tokens", group.window_tokens)
        .put("bytes_per_token", group.bytes_per_token);
  }
  return hash.finish();
}

// Geometry is inside: a record of other shapes must not pass for one of this layout, whatever its
// key.
Digest Layout::layout_digest() const {
  return internal::TaggedHash("terrace.layout.v1")
      .put("geometry", geometry_digest())
      .put("order", static_cast<std::uint32_t>(order))
      .put("padding", std::uint32_t{0})  // none between layers, components or heads
      .finish();
}

}  // namespace terrace
