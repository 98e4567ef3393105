// What a cache directory says of itself: comes back as it was written, and not at all once damaged.
#include "tier/nvme_manifest.hpp"

#include <gtest/gtest.h>

#include "index/store_fixture.hpp"

namespace terrace::internal {
namespace {

Layout many_groups(std::uint32_t count) {
  Layout layout;
  for (std::uint32_t i = 0; i < count; ++i) {
    Group group;
    group.first_layer = 60'000 + i;
    group.layer_count = 1;
    group.kv_heads = 1 + i % 7;
    group.head_dim = 8;
    layout.groups.push_back(group);
  }
  return layout;
}

TEST(NvmeManifest, IsTextThatAPersonCanRead) {
  const RecordFormat format(Layout::full(12, 8, 64, KvDtype::f32), 4096);
  EXPECT_EQ(format_manifest({format, 20'000, 7}),
            "terrace-cache 3\n"
            "record_format 1\n"
            "block_tokens 16\n"
            "dtype f32\n"
            "order layer_kv_head_token_dim\n"
            "group full_attention layer_count 12 kv_heads 8 head_dim 64\n"
            "layout_digest " +
                to_hex(format.layout_digest()) +
                "\n"
                "alignment 4096\n"
                "header_bytes 4096\n"
                "record_bytes 790528\n"
                "slot_count 20000\n"
                "life 7\n");
}

TEST(NvmeManifest, ComesBackAsItWasWritten) {
  for (const Layout& layout : {test::small_layout(), test::middle_layout(), many_groups(1024)}) {
    for (const std::uint32_t alignment : {4096U, 65'536U}) {
      const RecordFormat format(layout, alignment);
      const auto parsed = parse_manifest(format_manifest({format, 4'000'000'000U, 3'000'000'000U}));
      ASSERT_TRUE(parsed) << parsed.error().message;
      EXPECT_EQ(parsed->slot_count, 4'000'000'000U);
      EXPECT_EQ(parsed->life, 3'000'000'000U);
      EXPECT_EQ(parsed->format.layout_digest(), format.layout_digest());
      EXPECT_EQ(parsed->format.alignment(), alignment);
      EXPECT_EQ(parsed->format.record_bytes(), format.record_bytes());
    }
  }
}

// Only a digit of slot count or life can change without notice: nothing in a manifest speaks twice
// of them. A cache compares the slots with its own; a wrong life costs a hit at most.
TEST(NvmeManifest, NoDamageIsReadAsTheSameManifest) {
  const RecordFormat format(test::small_layout(), 4096);
  const std::string text = format_manifest({format, 20'000, 7});
  const std::size_t slots_at = text.find("slot_count") + 11;
  std::size_t refused = 0;
  const auto try_damaged = [&](const std::string& damaged, std::size_t at) {
    const auto parsed = parse_manifest(damaged);
    refused += !parsed;
    if (parsed) {
      EXPECT_GE(at, slots_at) << damaged;
      EXPECT_TRUE(parsed->slot_count != 20'000U || parsed->life != 7U) << damaged;
    }
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    try_damaged(text.substr(0, at), at);
    try_damaged(std::string(text).erase(at, 1), at);
    for (const char byte : {' ', '\n', '1', '9', 'z', '\0'}) {
      if (text[at] != byte) try_damaged(std::string(text).replace(at, 1, 1, byte), at);
    }
  }
  EXPECT_GT(refused, 6 * text.size());
}

TEST(NvmeManifest, SaysWhetherItIsDamagedOrOfAnotherVersion) {
  const std::string text = format_manifest({RecordFormat(test::small_layout(), 4096), 8, 1});
  const auto code = [](const std::string& manifest) {
    const auto parsed = parse_manifest(manifest);
    return parsed ? Code::busy : parsed.error().code;
  };
  const auto replaced = [&](const char* from, const char* to) {
    return std::string(text).replace(text.find(from), std::string_view(from).size(), to);
  };
  EXPECT_EQ(code("terrace-cache 1\nrecord_format 1\nlayout 12\n"), Code::unsupported);
  EXPECT_EQ(code(replaced("terrace-cache 3", "terrace-cache 4")), Code::unsupported);
  EXPECT_EQ(code(replaced("record_format 1", "record_format 2")), Code::unsupported);
  EXPECT_EQ(code(replaced("full_attention", "latent")), Code::unsupported);
  EXPECT_EQ(code(""), Code::corrupt);
  EXPECT_EQ(code("garbage"), Code::corrupt);
  EXPECT_EQ(code(replaced("alignment 4096", "alignment 4097")), Code::corrupt);
  EXPECT_EQ(code(replaced("alignment 4096", "alignment 0")), Code::corrupt);
  EXPECT_EQ(code(replaced("alignment 4096", "alignment 2147483648")), Code::corrupt);
  EXPECT_EQ(code(replaced("layer_count 3", "layer_count 4")), Code::corrupt);  // the digest knows
}

// The cap of a directory reserves so much for it.
TEST(NvmeManifest, AGroupTakesNoMoreBytesThanTheCapReserves) {
  Layout layout = many_groups(1);
  layout.block_tokens = 1;
  layout.groups[0] = {GroupKind::full_attention, 65'536, 65'536, 65'536, 65'536, 0, 0};
  const std::string text = format_layout(layout);
  EXPECT_LE(text.size() - text.find("group"), kManifestBytesPerGroup);
  EXPECT_GE(text.size() - text.find("group"), kManifestBytesPerGroup - 16);
}

class ManifestOnDiskTest : public test::StoreTest {};

TEST_F(ManifestOnDiskTest, TheSmallestCapHoldsItBesideEightBlocks) {
  Layout layout = many_groups(1024);
  layout.block_tokens = 1;
  use(layout);
  const std::uint64_t smallest =
      64 * KiB + 2 * 1023 * kManifestBytesPerGroup + 8 * (format_.record_bytes() + 32);
  EXPECT_FALSE(try_open(smallest - 1));
  for (int start = 0; start < 2; ++start) {
    auto store = open(smallest);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->slot_count(), 8U);
    EXPECT_LE(test::disk_usage(directory_ / "cache"), smallest);
    EXPECT_EQ(log_, "");
  }
}

}  // namespace
}  // namespace terrace::internal
