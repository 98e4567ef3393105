// A cache directory looked into while no cache has it open: everything is found, damage is named,
// nothing is changed. Records of 8 KiB are read in runs, those of 36 KiB by their headers.
#include "tier/nvme_reader.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "index/store_fixture.hpp"
#include "support/damage.hpp"

namespace terrace::internal {
namespace {

constexpr std::uint32_t kBlocks = 100;

class NvmeReaderTest : public test::StoreTest, public testing::WithParamInterface<bool> {
 protected:
  NvmeReaderTest() {
    if (GetParam()) use(test::middle_layout());
    chain_ = test::make_chain(layout_, kBlocks);
  }

  std::unique_ptr<NvmeStore> open_store() { return open(GetParam() ? 160 * MiB : 8 * MiB); }
  void write() {
    auto store = open_store();
    fill(*store, chain_);
    ASSERT_TRUE(store->close());
  }

  struct Found {
    std::vector<std::pair<std::uint32_t, Verdict>> refused;  // but for empty slots
    std::vector<std::uint32_t> good;
    std::uint32_t slots = 0;
  };
  Found look(bool payloads) {
    auto reader = NvmeReader::open(cache_);
    EXPECT_TRUE(reader && reader->manifest());
    const auto buffer = reader->make_buffer();
    Found found;
    const std::uint32_t count = reader->manifest()->slot_count;
    for (std::uint32_t first = 0; first < count; first += reader->slots_per_read()) {
      const std::uint32_t some = std::min(reader->slots_per_read(), count - first);
      reader->read(first, some, payloads, *buffer, [&](const NvmeReader::Slot& slot) {
        EXPECT_EQ(slot.slot, found.slots++);
        EXPECT_EQ(slot.os_error, 0);
        if (slot.verdict == Verdict::good) {
          expect_is(slot, chain_.blocks[slot.slot]);
          found.good.push_back(slot.slot);
        } else if (slot.verdict != Verdict::not_a_record) {
          found.refused.emplace_back(slot.slot, slot.verdict);
        }
      });
    }
    EXPECT_EQ(found.slots, count);
    return found;
  }
  static void expect_is(const NvmeReader::Slot& slot, const RecordMeta& block) {
    EXPECT_EQ(slot.meta.self, block.self);
    EXPECT_EQ(slot.meta.parent, block.parent);
    EXPECT_EQ(slot.meta.depth, block.depth);
    EXPECT_EQ(slot.meta.sequence, block.sequence);
    EXPECT_TRUE(std::ranges::equal(slot.meta.tokens, block.tokens));
  }

  using Refused = std::vector<std::pair<std::uint32_t, Verdict>>;
  test::Chain chain_;
  const std::string cache_ = directory_ / "cache";
  const std::string data_ = cache_ + "/blocks.dat";
};

INSTANTIATE_TEST_SUITE_P(Runs, NvmeReaderTest, testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Headers, NvmeReaderTest, testing::Values(true));

TEST_P(NvmeReaderTest, FindsEveryRecordAndChangesNothing) {
  write();
  const auto before = test::files_of(cache_);
  for (const bool payloads : {false, true}) {
    const Found found = look(payloads);
    EXPECT_EQ(found.good.size(), kBlocks);
    EXPECT_TRUE(found.refused.empty());
  }
  EXPECT_TRUE(before == test::files_of(cache_));
}

TEST_P(NvmeReaderTest, DescribesTheDirectory) {
  write();
  const auto reader = NvmeReader::open(cache_);
  ASSERT_TRUE(reader);
  EXPECT_FALSE(reader->in_use());
  EXPECT_EQ(reader->owner(), "process " + std::to_string(::getpid()));
  ASSERT_TRUE(reader->manifest());
  EXPECT_EQ(reader->manifest()->format.layout_digest(), layout_.layout_digest());
  const NvmeReader::Usage usage = reader->usage();
  EXPECT_EQ(usage.data_bytes, reader->manifest()->slot_count * format_.record_bytes());
  EXPECT_GE(usage.data_bytes_on_disk, kBlocks * format_.record_bytes());
  EXPECT_EQ(usage.index_bytes_on_disk > 0, reader->has_index());
}

TEST_P(NvmeReaderTest, NamesWhatIsDamaged) {
  write();
  const std::uint64_t stride = format_.record_bytes();
  ASSERT_TRUE(test::flip_byte(data_, 3 * stride + 2));                           // magic
  ASSERT_TRUE(test::flip_byte(data_, 5 * stride + 130));                         // lineage
  ASSERT_TRUE(test::flip_byte(data_, 7 * stride + 8));                           // format version
  ASSERT_TRUE(test::flip_byte(data_, 9 * stride + format_.header_bytes() + 5));  // payload
  EXPECT_EQ(look(false).refused,
            (Refused{{5, Verdict::header_damaged}, {7, Verdict::unknown_format}}));
  const Found found = look(true);
  EXPECT_EQ(found.refused, (Refused{{5, Verdict::header_damaged},
                                    {7, Verdict::unknown_format},
                                    {9, Verdict::payload_damaged}}));
  EXPECT_EQ(found.good.size(), kBlocks - 4);
}

// Its digests are right, and what it says of itself is not: nothing but the chain tells.
TEST_P(NvmeReaderTest, ARecordWhoseKeyIsNotThatOfItsTokensIsAnotherBlock) {
  chain_.blocks[4].self = chain_.blocks[5].self;
  write();
  EXPECT_EQ(look(false).refused, (Refused{{4, Verdict::other_block}}));
}

TEST_P(NvmeReaderTest, AShortenedFileKeepsItsFirstRecords) {
  write();
  const std::uint64_t stride = format_.record_bytes();
  std::filesystem::resize_file(data_, 40 * stride + format_.header_bytes() + 1001);
  EXPECT_EQ(look(false).good.size(), 41U);
  const Found found = look(true);
  EXPECT_EQ(found.good.size(), 40U);
  EXPECT_EQ(found.refused, (Refused{{40, Verdict::payload_damaged}}));
}

TEST_P(NvmeReaderTest, WithoutADataFileEverySlotIsEmpty) {
  write();
  std::filesystem::remove(data_);
  EXPECT_TRUE(look(true).good.empty());
  EXPECT_FALSE(std::filesystem::exists(data_));
}

TEST_P(NvmeReaderTest, AReaderKeepsCachesOutAndOtherReadersIn) {
  write();
  std::optional<Result<NvmeReader>> reader(NvmeReader::open(cache_));
  ASSERT_TRUE(*reader);
  EXPECT_FALSE(NvmeReader::open(cache_)->in_use());
  const auto refused = try_open(160 * MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::busy);
  EXPECT_NE(std::string(refused.error().message).find("inspected"), std::string::npos);
  reader.reset();
  EXPECT_NE(open_store(), nullptr);
}

TEST_P(NvmeReaderTest, ACacheInItIsSeenAndNotDisturbed) {
  write();
  auto store = open_store();
  ASSERT_EQ(recover(*store).size(), kBlocks);
  const auto reader = NvmeReader::open(cache_);
  ASSERT_TRUE(reader);
  EXPECT_TRUE(reader->in_use());
  EXPECT_EQ(reader->owner(), "process " + std::to_string(::getpid()));
  EXPECT_EQ(look(true).good.size(), kBlocks);
  StoreTest::write(*store, 0, chain_.blocks[0]);
  EXPECT_TRUE(store->close());
}

TEST_P(NvmeReaderTest, WhatIsNoCacheIsRefusedByName) {
  const auto expect = [](const std::string& path, Code code, const char* text) {
    const auto reader = NvmeReader::open(path);
    ASSERT_FALSE(reader) << path;
    EXPECT_EQ(reader.error().code, code) << path;
    EXPECT_NE(std::string(reader.error().message).find(text), std::string::npos)
        << reader.error().message;
  };
  expect(directory_ / "nowhere", Code::invalid_argument, "no such directory");
  std::ofstream(directory_ / "file") << "x";
  expect(directory_ / "file", Code::invalid_argument, "not a directory");
  std::filesystem::create_directory(directory_ / "foreign");
  std::ofstream(directory_ / "foreign/blocks.dat") << "precious";
  expect(directory_ / "foreign", Code::invalid_argument, "no terrace.lock");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "foreign/terrace.lock"));
}

TEST_P(NvmeReaderTest, AManifestIsReadOrSaysWhyNot) {
  write();
  const std::string manifest = cache_ + "/terrace.manifest";
  const auto code = [&] {
    const auto reader = NvmeReader::open(cache_);
    return reader->manifest() ? Code::busy : reader->manifest().error().code;
  };
  EXPECT_EQ(code(), Code::busy);
  ASSERT_TRUE(test::flip_byte(manifest, 40));
  EXPECT_EQ(code(), Code::corrupt);
  std::ofstream(manifest) << "terrace-cache 1\n";
  EXPECT_EQ(code(), Code::unsupported);
  std::filesystem::remove(manifest);
  EXPECT_EQ(code(), Code::io_error);
}

TEST_P(NvmeReaderTest, ReadsTheIndexWhereThereIsOne) {
  write();
  const auto reader = NvmeReader::open(cache_);
  ASSERT_TRUE(reader);
  if (!reader->has_index()) GTEST_SKIP() << "no index at this size, or built without RocksDB";
  std::uint32_t entries = 0;
  const auto complete =
      reader->read_index([&](std::uint32_t slot, std::span<const std::byte> header) {
        RecordMeta meta;
        ASSERT_EQ(format_.parse(header, meta), Verdict::good);
        EXPECT_EQ(meta.self, chain_.blocks[slot].self);
        ++entries;
      });
  ASSERT_TRUE(complete);
  EXPECT_TRUE(*complete);
  EXPECT_EQ(entries, kBlocks);
}

}  // namespace
}  // namespace terrace::internal
