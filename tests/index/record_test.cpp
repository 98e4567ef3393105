// The record: what is written is what is read, and any other byte string is refused (I2, I11).
#include "index/record.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "index/sample.hpp"

namespace terrace::internal {
namespace {

using test::AlignedBytes;
using test::make_chain;
using test::make_record;
using test::small_layout;

class RecordTest : public testing::Test {
 protected:
  const Layout layout_ = small_layout();
  const RecordFormat format_{layout_, 4096};
  const test::Chain chain_ = make_chain(layout_, 4);
};

bool equal(const RecordMeta& a, const RecordMeta& b) {
  return a.root == b.root && a.self == b.self && a.parent == b.parent && a.depth == b.depth &&
         std::ranges::equal(a.tokens, b.tokens) && a.incarnation == b.incarnation &&
         a.sequence == b.sequence;
}

TEST_F(RecordTest, SizesFollowFromTheLayout) {
  EXPECT_EQ(format_.entry_bytes(), 296U + 16 * 4 + 3 * 8);
  EXPECT_EQ(format_.header_bytes(), 4096U);
  EXPECT_EQ(format_.payload_bytes(), layout_.block_bytes());
  EXPECT_EQ(format_.record_bytes(), 4096U + 4096);
  const RecordFormat packed(layout_, 8);
  EXPECT_EQ(packed.header_bytes(), 384U);
  EXPECT_EQ(packed.record_bytes(), 384U + layout_.block_bytes());
}

TEST_F(RecordTest, RoundTrip) {
  for (const RecordMeta& meta : chain_.blocks) {
    const AlignedBytes record = make_record(format_, meta);
    EXPECT_EQ(format_.verify(record.span(), meta), Verdict::good);
    RecordMeta found;
    EXPECT_EQ(format_.parse(record.span(), found), Verdict::good);
    EXPECT_TRUE(equal(found, meta));
    EXPECT_EQ(format_.parse(record.span().first(format_.entry_bytes()), found), Verdict::good);
    EXPECT_TRUE(equal(found, meta));
  }
}

TEST_F(RecordTest, RoundTripOfOtherShapes) {
  for (const std::uint32_t tokens : {1U, 7U, 64U}) {
    Layout layout = Layout::full(5, 3, 4, KvDtype::f32, tokens);
    const RecordFormat format(layout, 512);
    const auto chain = make_chain(layout, 2);
    const AlignedBytes record = make_record(format, chain.blocks[1]);
    EXPECT_EQ(format.verify(record.span(), chain.blocks[1]), Verdict::good) << tokens;
  }
}

TEST_F(RecordTest, APartialBlockKeepsItsTokenCount) {
  RecordMeta partial = chain_.blocks[0];
  partial.tokens = partial.tokens.first(5);
  const AlignedBytes record = make_record(format_, partial);
  EXPECT_EQ(format_.verify(record.span(), partial), Verdict::good);
  EXPECT_EQ(format_.verify(record.span(), chain_.blocks[0]), Verdict::other_block);
}

TEST_F(RecordTest, BytesAreThoseOfTheFormat) {
  const AlignedBytes record = make_record(format_, chain_.blocks[2]);
  const std::byte* bytes = record.span().data();
  EXPECT_EQ(
      std::memcmp(bytes, "TERRACER\x01\x00\x01\x00\x00\x10\x00\x00\x00\x00\x00\x00\x01\x00\x01\x00",
                  24),
      0);
  EXPECT_EQ(std::memcmp(bytes + 48, layout_.layout_digest().data(), 32), 0);
  EXPECT_EQ(std::memcmp(bytes + 128, chain_.blocks[2].self.lineage.data(), 32), 0);
  EXPECT_EQ(std::memcmp(bytes + 208, "\x02\x00\x00\x00\x10\x00\x00\x00", 8), 0);  // depth, tokens
  EXPECT_EQ(std::memcmp(bytes + 296, chain_.tokens[2].data(), 64), 0);
}

TEST_F(RecordTest, NoStaleMemoryIsWritten) {
  const AlignedBytes record = make_record(format_, chain_.blocks[0]);
  const auto zero = [](std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
  };
  const auto bytes = record.span();
  EXPECT_TRUE(zero(bytes.subspan(format_.entry_bytes(), 4096 - format_.entry_bytes())));
  EXPECT_TRUE(zero(bytes.subspan(4096 + format_.payload_bytes())));
}

TEST_F(RecordTest, I2EveryPartOfTheExpectationIsCompared) {
  const RecordMeta& meta = chain_.blocks[2];
  const AlignedBytes record = make_record(format_, meta);
  const auto expect_other = [&](const char* what, auto change) {
    RecordMeta expected = meta;
    change(expected);
    EXPECT_EQ(format_.verify(record.span(), expected), Verdict::other_block) << what;
  };
  std::vector<TokenId> tokens = chain_.tokens[2];
  tokens[15] ^= 0x8000'0000U;
  expect_other("root", [](RecordMeta& m) { m.root[31] ^= std::byte{1}; });
  expect_other("key", [](RecordMeta& m) { m.self.key.high ^= 1; });
  expect_other("lineage", [](RecordMeta& m) { m.self.lineage[0] ^= std::byte{1}; });
  expect_other("parent key", [](RecordMeta& m) { m.parent.key.low ^= 1; });
  expect_other("parent lineage", [](RecordMeta& m) { m.parent.lineage[0] ^= std::byte{1}; });
  expect_other("depth", [](RecordMeta& m) { ++m.depth; });
  expect_other("tokens", [&](RecordMeta& m) { m.tokens = tokens; });
  expect_other("fewer tokens", [](RecordMeta& m) { m.tokens = m.tokens.first(15); });
}

TEST_F(RecordTest, ASecondWriteOfOneBlockIsTheSameBlock) {
  RecordMeta again = chain_.blocks[1];
  again.incarnation = 8;
  again.sequence = 100;
  const AlignedBytes record = make_record(format_, again);
  EXPECT_EQ(format_.verify(record.span(), chain_.blocks[1]), Verdict::good);
}

TEST_F(RecordTest, SealingAgainFromItsOwnTokensKeepsThem) {
  const AlignedBytes record = make_record(format_, chain_.blocks[1]);
  RecordMeta found;
  ASSERT_EQ(format_.parse(record.span(), found), Verdict::good);
  found.sequence = 9;
  format_.seal(record.span(), found);
  EXPECT_EQ(format_.verify(record.span(), chain_.blocks[1]), Verdict::good);
}

TEST_F(RecordTest, I11EveryFlippedBitOfTheEntryIsSeen) {
  const RecordMeta& meta = chain_.blocks[2];
  const AlignedBytes record = make_record(format_, meta);
  const auto entry = record.span().first(format_.entry_bytes());
  for (std::size_t bit = 0; bit < entry.size() * 8; ++bit) {
    const std::byte mask{static_cast<unsigned char>(1U << bit % 8)};
    entry[bit / 8] ^= mask;
    RecordMeta found;
    EXPECT_NE(format_.parse(entry, found), Verdict::good) << "bit " << bit;
    EXPECT_TRUE(found.tokens.empty()) << "a refused header filled the meta";
    EXPECT_NE(format_.verify(record.span(), meta), Verdict::good) << "bit " << bit;
    entry[bit / 8] ^= mask;
  }
  EXPECT_EQ(format_.verify(record.span(), meta), Verdict::good);
}

TEST_F(RecordTest, I11EveryFlippedByteOfThePayloadIsSeen) {
  const RecordMeta& meta = chain_.blocks[2];
  const AlignedBytes record = make_record(format_, meta);
  const auto payload = record.span().subspan(format_.header_bytes(), format_.payload_bytes());
  for (std::byte& byte : payload) {
    byte ^= std::byte{0x10};
    EXPECT_EQ(format_.verify(record.span(), meta), Verdict::payload_damaged);
    byte ^= std::byte{0x10};
  }
  EXPECT_EQ(format_.verify(record.span(), meta), Verdict::good);
}

TEST_F(RecordTest, SwappedLayersAreSeen) {
  const AlignedBytes record = make_record(format_, chain_.blocks[2]);
  const auto payload = record.span().subspan(format_.header_bytes());
  const Slice first = layout_.layer_slice(0);
  const Slice second = layout_.layer_slice(1);
  payload[first.offset] ^= std::byte{1};  // so that the layers differ
  format_.seal(record.span(), chain_.blocks[2]);
  std::swap_ranges(payload.begin() + static_cast<std::ptrdiff_t>(first.offset),
                   payload.begin() + static_cast<std::ptrdiff_t>(first.offset + first.bytes),
                   payload.begin() + static_cast<std::ptrdiff_t>(second.offset));
  EXPECT_EQ(format_.verify(record.span(), chain_.blocks[2]), Verdict::payload_damaged);
}

TEST_F(RecordTest, EveryTruncationIsRefused) {
  const RecordMeta& meta = chain_.blocks[1];
  const AlignedBytes record = make_record(format_, meta);
  for (std::size_t size = 0; size < format_.header_bytes() + format_.payload_bytes(); ++size) {
    // A copy of exactly this size, so that a sanitizer sees any read beyond it.
    std::vector<std::uint32_t> copy((size + 3) / 4);
    if (size > 0) std::memcpy(copy.data(), record.span().data(), size);
    const auto bytes = std::as_bytes(std::span(copy)).first(size);
    RecordMeta found;
    const bool has_entry = size >= format_.entry_bytes();
    ASSERT_EQ(format_.parse(bytes, found) == Verdict::good, has_entry) << size;
    ASSERT_NE(format_.verify(bytes, meta), Verdict::good) << size;
  }
}

// A header whose digest is right but whose content is not ours: written by another version, or
// crafted by someone who knows the format.
class CraftedRecordTest : public RecordTest {
 protected:
  // Seals a record of `writer`, and asks our format.
  Verdict ask(const RecordFormat& writer, const Layout& layout) {
    const auto chain = make_chain(layout, 1);
    const AlignedBytes record = make_record(writer, chain.blocks[0]);
    RecordMeta found;
    return format_.parse(record.span(), found);
  }
};

TEST_F(CraftedRecordTest, AnotherLayoutOfEqualSizeDiffers) {
  const Layout other = Layout::full(3, 8, 2, KvDtype::f16);
  ASSERT_EQ(other.block_bytes(), layout_.block_bytes());
  EXPECT_EQ(ask(RecordFormat(other, 4096), other), Verdict::layout_differs);
}

TEST_F(CraftedRecordTest, AnotherAlignmentDiffers) {
  EXPECT_EQ(ask(RecordFormat(layout_, 8192), layout_), Verdict::layout_differs);
}

TEST_F(CraftedRecordTest, MoreTokensOrLayersThanOursDiffer) {
  const Layout wide = Layout::full(40, 1, 8, KvDtype::f16, 64);
  EXPECT_EQ(ask(RecordFormat(wide, 4096), wide), Verdict::layout_differs);
}

TEST_F(RecordTest, AnotherFormatVersionIsUnknown) {
  const AlignedBytes record = make_record(format_, chain_.blocks[0]);
  record.span()[8] = std::byte{2};
  RecordMeta found;
  EXPECT_EQ(format_.parse(record.span(), found), Verdict::unknown_format);
}

TEST_F(RecordTest, NeverWrittenBytesAreNotARecord) {
  AlignedBytes zeros(format_.record_bytes());
  std::ranges::fill(zeros.span(), std::byte{0});
  RecordMeta found;
  EXPECT_EQ(format_.parse(zeros.span(), found), Verdict::not_a_record);
  EXPECT_EQ(format_.verify(zeros.span(), chain_.blocks[0]), Verdict::not_a_record);
}

TEST_F(RecordTest, RandomBytesAreNeverGood) {
  std::mt19937_64 random(20'240);
  std::vector<std::uint64_t> words(format_.record_bytes() / 8);
  for (int round = 0; round < 2'000; ++round) {
    for (std::uint64_t& word : words) word = random();
    const auto bytes = std::as_bytes(std::span(words)).first(random() % (words.size() * 8));
    if (round % 2 == 0) std::memcpy(words.data(), "TERRACER\x01\x00", 10);  // past the first checks
    RecordMeta found;
    ASSERT_NE(format_.parse(bytes, found), Verdict::good);
    ASSERT_NE(format_.verify(bytes, chain_.blocks[0]), Verdict::good);
  }
}

// Takes a good record apart in the ways of a fuzzer: several bytes, spliced ranges, extreme counts.
TEST_F(RecordTest, MutatedRecordsAreNeverGood) {
  std::mt19937_64 random(4'711);
  const RecordMeta& meta = chain_.blocks[3];
  const AlignedBytes good = make_record(format_, meta);
  const AlignedBytes other = make_record(format_, chain_.blocks[1]);
  AlignedBytes bytes(format_.record_bytes());
  const std::size_t covered = format_.entry_bytes();
  for (int round = 0; round < 20'000; ++round) {
    std::memcpy(bytes.span().data(), good.span().data(), bytes.span().size());
    const std::size_t at = random() % covered;
    switch (random() % 3) {
      case 0:
        for (std::uint64_t i = 0; i < 1 + random() % 4; ++i) {
          bytes.span()[random() % covered] = static_cast<std::byte>(random());
        }
        break;
      case 1:
        std::memcpy(&bytes.span()[at], &other.span()[at], 1 + random() % (covered - at));
        break;
      default:
        std::memset(&bytes.span()[at / 4 * 4], random() % 2 == 0 ? 0xff : 0, 4);
    }
    const bool same = std::memcmp(bytes.span().data(), good.span().data(), covered) == 0;
    RecordMeta found;
    const Verdict verdict = format_.parse(bytes.span(), found);
    ASSERT_EQ(format_.verify(bytes.span(), meta) == Verdict::good, same);
    ASSERT_TRUE(verdict != Verdict::good || equal(found, meta) || equal(found, chain_.blocks[1]));
  }
}

TEST(Verdict, EachHasAName) {
  EXPECT_STREQ(to_string(Verdict::good), "good");
  EXPECT_STREQ(to_string(Verdict::payload_damaged), "payload_damaged");
  EXPECT_STREQ(to_string(static_cast<Verdict>(99)), "unknown");
}

}  // namespace
}  // namespace terrace::internal
