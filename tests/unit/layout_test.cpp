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

// ---- In words

TEST(LayoutText, IsWhatTheHeaderShows) {
  EXPECT_EQ(format_layout(Layout::full(32, 8, 128, KvDtype::bf16)),
            "block_tokens 16\n"
            "dtype bf16\n"
            "order layer_kv_head_token_dim\n"
            "group full_attention layer_count 32 kv_heads 8 head_dim 128\n");
}

TEST(LayoutText, ComesBackAsTheSameLayout) {
  std::vector<Layout> layouts = {llama(), two_groups()};
  for (const KvDtype dtype :
       {KvDtype::f32, KvDtype::f16, KvDtype::bf16, KvDtype::fp8_e4m3, KvDtype::fp8_e5m2}) {
    layouts.push_back(Layout::full(1, 65536, 1, dtype, 1));
  }
  for (const Layout& layout : layouts) {
    const auto parsed = parse_layout(format_layout(layout));
    ASSERT_TRUE(parsed) << format_layout(layout);
    EXPECT_EQ(parsed->layout_digest(), layout.layout_digest());
    EXPECT_EQ(format_layout(*parsed), format_layout(layout));
  }
}

TEST(LayoutText, EveryFieldIsInIt) {
  Layout layout = two_groups();
  for (Group& group : layout.groups) {
    group.kind = GroupKind::sliding_window;
    group.window_tokens = 4096;
    group.bytes_per_token = 576;
  }
  const std::string text = format_layout(layout);
  EXPECT_NE(text.find("group sliding_window first_layer 3 layer_count 2 kv_heads 4 head_dim 16 "
                      "window_tokens 4096 bytes_per_token 576\n"),
            std::string::npos)
      << text;
}

TEST(LayoutText, KindsThatCannotBeStoredAreReadAndRefusedAsSuch) {
  for (const GroupKind kind : {GroupKind::sliding_window, GroupKind::latent, GroupKind::sidecar,
                               GroupKind::boundary_snapshot}) {
    Layout layout = llama();
    layout.groups[0].kind = kind;
    const auto parsed = parse_layout(format_layout(layout));
    ASSERT_FALSE(parsed) << to_string(kind);
    EXPECT_EQ(parsed.error().code, Code::unsupported) << to_string(kind);
  }
}

// Each byte taken out, changed, and doubled, and each place cut at: what is still taken is a layout
// of its own, whose text it is.
TEST(LayoutText, NoDamageIsReadAsTheSameLayout) {
  const std::string text = format_layout(two_groups());
  std::size_t refused = 0;
  const auto try_damaged = [&](const std::string& damaged) {
    const auto parsed = parse_layout(damaged);
    if (!parsed) {
      ++refused;
      return;
    }
    EXPECT_EQ(format_layout(*parsed), damaged);
    EXPECT_NE(parsed->layout_digest(), two_groups().layout_digest()) << damaged;
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    try_damaged(text.substr(0, at));
    try_damaged(std::string(text).erase(at, 1));
    if (at > 0 && text[at] != text[at - 1]) try_damaged(std::string(text).insert(at, 1, text[at]));
    for (const char byte : {' ', '\n', '0', '9', 'z', '\0'}) {
      if (text[at] != byte) try_damaged(std::string(text).replace(at, 1, 1, byte));
    }
  }
  EXPECT_GT(refused, 5 * text.size());
}

TEST(LayoutText, RefusesWhatIsNotCanonical) {
  const std::string good = format_layout(llama());
  ASSERT_TRUE(parse_layout(good));
  for (const std::string& text : {std::string(), std::string("block_tokens 16\n"), good + "\n",
                                  good + "colour blue\n", "\n" + good, good + good}) {
    const auto parsed = parse_layout(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::invalid_argument) << text;
  }
  const auto replaced = [&](const char* from, const char* to) {
    return std::string(good).replace(good.find(from), std::string_view(from).size(), to);
  };
  for (const std::string& text :
       {replaced("block_tokens 16", "block_tokens 016"), replaced("bf16", "bf17"),
        replaced("layer_kv_head_token_dim", "token_first"), replaced("full_attention", "half"),
        replaced("kv_heads 2", "kv_heads 99999999999"), replaced("kv_heads 2", "kv_heads -2"),
        replaced("kv_heads 2", "kv_heads 2 colour 3"), replaced("layer_count 4", "layer_count 0"),
        replaced("layer_count 4 kv_heads 2", "kv_heads 2 layer_count 4"),
        replaced("block_tokens 16", "block_tokens 5000")}) {
    EXPECT_FALSE(parse_layout(text)) << text;
  }
}

}  // namespace
}  // namespace terrace
