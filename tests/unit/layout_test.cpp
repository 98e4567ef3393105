// How a block lies in memory: slices tile it without gaps, bad layouts are refused by name, digests
// separate geometry from order.
#include "terrace/layout.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace terrace {
namespace {

Layout llama() {
  return Layout::full(4, 2, 64, KvDtype::bf16);
}

Layout two_groups() {
  Layout layout = Layout::full(3, 2, 8, KvDtype::f32, 7);
  Group wide;
  wide.first_layer = 3;
  wide.layer_count = 2;
  wide.kv_heads = 4;
  wide.head_dim = 16;
  layout.groups.push_back(wide);
  return layout;
}

void expect_refused(const Layout& layout, const char* field, Code code = Code::invalid_argument) {
  const auto valid = layout.validate();
  ASSERT_FALSE(valid) << field;
  EXPECT_EQ(valid.error().code, code) << field;
  EXPECT_NE(std::string(valid.error().message).find(field), std::string::npos)
      << valid.error().message << " does not name " << field;
}

TEST(Layout, BlockBytesOfTheCommonCase) {
  // 4 layers x (K, V) x 2 heads x 16 tokens x 64 dims x 2 bytes
  EXPECT_EQ(llama().block_bytes(), 4U * 2 * 2 * 16 * 64 * 2);
  EXPECT_EQ(llama().layer_count(), 4U);
  EXPECT_TRUE(llama().validate());
}

TEST(Layout, EveryDtypeHasASizeAndAName) {
  EXPECT_EQ(bytes_of(KvDtype::f32), 4U);
  EXPECT_EQ(bytes_of(KvDtype::f16), 2U);
  EXPECT_EQ(bytes_of(KvDtype::bf16), 2U);
  EXPECT_EQ(bytes_of(KvDtype::fp8_e4m3), 1U);
  EXPECT_EQ(bytes_of(KvDtype::fp8_e5m2), 1U);
  EXPECT_STREQ(to_string(KvDtype::fp8_e4m3), "fp8_e4m3");
  EXPECT_EQ(bytes_of(static_cast<KvDtype>(99)), 0U);
  EXPECT_STREQ(to_string(static_cast<KvDtype>(99)), "unknown");
}

TEST(Layout, SlicesTileTheBlock) {
  for (const Layout& layout : {llama(), two_groups()}) {
    ASSERT_TRUE(layout.validate());
    std::uint64_t next = 0;
    for (std::uint32_t layer = 0; layer < layout.layer_count(); ++layer) {
      const Slice whole = layout.layer_slice(layer);
      const Slice keys = layout.component_slice(layer, 0);
      const Slice values = layout.component_slice(layer, 1);
      EXPECT_EQ(whole.offset, next);
      EXPECT_EQ(keys.offset, whole.offset);
      EXPECT_EQ(values.offset, keys.offset + keys.bytes);
      EXPECT_EQ(keys.bytes, values.bytes);
      EXPECT_EQ(keys.bytes + values.bytes, whole.bytes);
      next += whole.bytes;
    }
    EXPECT_EQ(next, layout.block_bytes());
  }
}

TEST(Layout, GroupsMayDifferInShape) {
  const Layout layout = two_groups();
  EXPECT_EQ(layout.layer_slice(2).bytes, 2U * 2 * 7 * 8 * 4);
  EXPECT_EQ(layout.layer_slice(3).bytes, 2U * 4 * 7 * 16 * 4);
}

TEST(Layout, AMissingLayerOrComponentIsEmpty) {
  EXPECT_EQ(llama().layer_slice(4).bytes, 0U);
  EXPECT_EQ(llama().component_slice(4, 0).bytes, 0U);
  EXPECT_EQ(llama().component_slice(0, 2).bytes, 0U);
}

TEST(Layout, RefusesBadFieldsByName) {
  const auto changed = [](auto change) {
    Layout layout = llama();
    change(layout, layout.groups[0]);
    return layout;
  };
  expect_refused(changed([](Layout& l, Group&) { l.block_tokens = 0; }), "block_tokens");
  expect_refused(changed([](Layout& l, Group&) { l.block_tokens = 4097; }), "block_tokens");
  expect_refused(changed([](Layout& l, Group&) { l.dtype = static_cast<KvDtype>(0); }), "dtype");
  expect_refused(changed([](Layout& l, Group&) { l.order = static_cast<AtRestOrder>(2); }),
                 "order");
  expect_refused(changed([](Layout& l, Group&) { l.groups.clear(); }), "groups");
  expect_refused(changed([](Layout&, Group& g) { g.layer_count = 0; }), "layer_count");
  expect_refused(changed([](Layout&, Group& g) { g.kv_heads = 0; }), "kv_heads");
  expect_refused(changed([](Layout&, Group& g) { g.head_dim = 0; }), "head_dim");
  expect_refused(changed([](Layout&, Group& g) { g.window_tokens = 1; }), "window_tokens");
  expect_refused(changed([](Layout&, Group& g) { g.bytes_per_token = 1; }), "bytes_per_token");
  expect_refused(changed([](Layout&, Group& g) { g.kind = static_cast<GroupKind>(77); }), "kind");
}

TEST(Layout, RefusesOverflowInsteadOfWrappingAround) {
  constexpr auto kHuge = std::numeric_limits<std::uint32_t>::max();
  expect_refused(Layout::full(kHuge, 1, 1, KvDtype::f32), "layer_count");
  expect_refused(Layout::full(1, kHuge, 1, KvDtype::f32), "kv_heads");
  expect_refused(Layout::full(1, 1, kHuge, KvDtype::f32), "head_dim");
  expect_refused(Layout::full(65536, 65536, 65536, KvDtype::f32, 4096), "1 GiB");
}

TEST(Layout, RefusesALayerInTwoGroups) {
  Layout layout = two_groups();
  layout.groups[1].first_layer = 2;
  expect_refused(layout, "two groups");
}

TEST(Layout, KindsThatCanBeNamedButNotStoredAreUnsupported) {
  for (const GroupKind kind : {GroupKind::sliding_window, GroupKind::latent, GroupKind::sidecar,
                               GroupKind::boundary_snapshot}) {
    Layout layout = llama();
    layout.groups[0].kind = kind;
    expect_refused(layout, "full_attention", Code::unsupported);
  }
}

TEST(Layout, GoldenDigests) {
  EXPECT_EQ(to_hex(llama().geometry_digest()),
            "921e95ce93a869e3b8dfacf92f6f1e8970035927bf0b235719066c90dee0f3ff");
  EXPECT_EQ(to_hex(llama().layout_digest()),
            "ba6b04eaec64d52dc831aca4e61c83fcda260dd28f06dc0d284b93bd9f920293");
}

TEST(Layout, EqualSizeDoesNotMeanEqualGeometry) {
  const Layout original = llama();
  const Layout swapped = Layout::full(4, 64, 2, KvDtype::bf16);
  const Layout other_dtype = Layout::full(4, 2, 64, KvDtype::f16);
  const Layout layers = Layout::full(2, 4, 64, KvDtype::bf16);
  const Layout tokens = Layout::full(4, 1, 64, KvDtype::bf16, 32);
  for (const Layout& other : {swapped, other_dtype, layers, tokens}) {
    ASSERT_EQ(other.block_bytes(), original.block_bytes());
    EXPECT_NE(other.geometry_digest(), original.geometry_digest());
    EXPECT_NE(other.layout_digest(), original.layout_digest());
  }
  EXPECT_EQ(llama().geometry_digest(), original.geometry_digest());
}

TEST(Layout, OrderIsLayoutButNotGeometry) {
  Layout other = llama();
  other.order = static_cast<AtRestOrder>(2);  // an order of some later version
  EXPECT_EQ(other.geometry_digest(), llama().geometry_digest());
  EXPECT_NE(other.layout_digest(), llama().layout_digest());
}

}  // namespace
}  // namespace terrace
