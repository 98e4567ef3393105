// What a directory still holds after a restart, a crash, damage and a change of options (I21, I22;
// kinds CRASH-CONSISTENCY and INDEX-DB). Each test runs with the index (where there is one) and
// without.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "index/store_fixture.hpp"
#include "tier/nvme_manifest.hpp"

namespace terrace::internal {
namespace {

using test::make_chain;
using test::make_record;

constexpr std::uint64_t kWithIndex = 160 * MiB;
constexpr std::uint64_t kWithoutIndex = 8 * MiB;
constexpr std::uint32_t kBlocks = 120;

class RecoveryTest : public test::StoreTest, public testing::WithParamInterface<std::uint64_t> {
 protected:
  RecoveryTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (GetParam() == kWithIndex) use(test::middle_layout());
    chain_ = make_chain(layout_, kBlocks);
  }

  static bool has_index() {
#if defined(TERRACE_WITH_ROCKSDB)
    return GetParam() == kWithIndex;
#else
    return false;
#endif
  }
  std::unique_ptr<NvmeStore> open() {
    return StoreTest::open(GetParam());
  }
  void write_and_close(const test::Chain& chain) {
    auto store = open();
    fill(*store, chain);
    ASSERT_TRUE(store->close());
  }
  // Changes bytes of the data file behind the store's back.
  void patch(std::uint64_t offset, const std::string& bytes) {
    std::fstream file(data_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
    ASSERT_TRUE(file.good());
  }

  test::Chain chain_;
  const std::string cache_ = directory_ / "cache";
  const std::string data_ = cache_ + "/blocks.dat";
  const std::string index_ = cache_ + "/index";
};

INSTANTIATE_TEST_SUITE_P(Scan, RecoveryTest, testing::Values(kWithoutIndex));
#if defined(TERRACE_WITH_ROCKSDB)
INSTANTIATE_TEST_SUITE_P(Index, RecoveryTest, testing::Values(kWithIndex));
#endif

TEST_P(RecoveryTest, ANewDirectoryHoldsNothing) {
  auto store = open();
  EXPECT_TRUE(recover(*store).empty());
  EXPECT_EQ(store->index().usable(), has_index());
}

TEST_P(RecoveryTest, I21ACleanRestartFindsEverything) {
  write_and_close(chain_);
  auto store = open();
  EXPECT_EQ(store->index().usable(), has_index());
  expect_recovers(*store, chain_, kBlocks);
}

TEST_P(RecoveryTest, AStoreThatWasNotClosedFindsEverything) {
  {
    auto store = open();
    fill(*store, chain_);
  }
  expect_recovers(*open(), chain_, kBlocks);
}

TEST_P(RecoveryTest, PlainFileIoFindsWhatIoUringWrote) {
  write_and_close(chain_);
  io_uring_ = false;
  auto store = open();
  EXPECT_FALSE(store->device().facts().io_uring);
  expect_recovers(*store, chain_, kBlocks);
}

TEST_P(RecoveryTest, I21Kill9LosesNothingThatTheIndexHasTaken) {
  EXPECT_EXIT(
      {
        auto store = open();
        fill(*store, chain_);
        (void)store->index().flush();
        ::kill(::getpid(), SIGKILL);
      },
      testing::KilledBySignal(SIGKILL), "");
  expect_recovers(*open(), chain_, kBlocks);
}

// O046: data written, index not; and the other way round.
TEST_P(RecoveryTest, I21AnEntryWithoutItsRecordIsAMissAndNothingMore) {
  write_and_close(chain_);
  patch(5 * format_.record_bytes(), std::string(format_.record_bytes(), '\0'));
  auto store = open();
  const auto seen = recover(*store);
  EXPECT_EQ(seen.size(),
            has_index() ? kBlocks : kBlocks - 1);  // the index believes; a read does not
  const test::AlignedBytes record(format_.record_bytes());
  ASSERT_EQ(transfer(*store, IoRequest::Kind::read, 5, record), 0);
  EXPECT_EQ(format_.verify(record.span(), chain_.blocks[5]), Verdict::not_a_record);
}

TEST_P(RecoveryTest, I22ALostIndexIsRebuiltFromTheRecords) {
  write_and_close(chain_);
  std::filesystem::remove_all(index_);
  {
    auto store = open();
    EXPECT_FALSE(store->index().usable());
    expect_recovers(*store, chain_, kBlocks);
    EXPECT_EQ(store->index().usable(), has_index());
  }
  expect_recovers(*open(), chain_, kBlocks);  // and now from the index that was rebuilt
}

TEST_P(RecoveryTest, I22AScanThatWasInterruptedIsDoneAgain) {
  write_and_close(chain_);
  std::filesystem::remove_all(index_);
  { auto store = open(); }  // the index is made anew, and the process ends before recovery
  auto store = open();
  EXPECT_FALSE(store->index().usable());
  expect_recovers(*store, chain_, kBlocks);
}

TEST_P(RecoveryTest, I22ADamagedIndexIsRebuiltFromTheRecords) {
  if (!has_index()) GTEST_SKIP() << "no index at this size";
  for (const char* kind : {"CURRENT", "MANIFEST", ".sst", ""}) {
    std::filesystem::remove_all(cache_);
    write_and_close(chain_);
    { auto again = open(); }  // its log becomes a table
    for (const auto& file : std::filesystem::directory_iterator(index_)) {
      if (file.path().filename().string().find(kind) == std::string::npos) continue;
      std::ofstream(file.path(), std::ios::binary) << std::string(3'000, 'x');
    }
    log_.clear();
    auto store = open();
    expect_recovers(*store, chain_, kBlocks);
    EXPECT_TRUE(store->index().usable()) << kind;
    EXPECT_NE(log_.find(index_), std::string::npos) << "damage of " << kind << " was not reported";
  }
}

TEST_P(RecoveryTest, DamagedHeadersAreCountedAndLeftOut) {
  if (has_index()) GTEST_SKIP() << "the index believes its own copy; a read does not";
  write_and_close(chain_);
  patch(50 * format_.record_bytes() + 130, "?");
  patch(119 * format_.record_bytes() + 40, "?");
  auto store = open();
  EXPECT_EQ(recover(*store).size(), kBlocks - 2);
  EXPECT_NE(log_.find("2 header_damaged"), std::string::npos) << log_;
}

TEST_P(RecoveryTest, OfTwoRecordsOfOneBlockTheNewerCounts) {
  RecordMeta newer = chain_.blocks[3];
  newer.sequence = 1'000;
  {
    auto store = open();
    fill(*store, chain_);
    write(*store, kBlocks + 5, newer);
    ASSERT_TRUE(store->close());
  }
  for (int start = 0; start < 2; ++start) {
    const auto seen = recover(*open());
    ASSERT_EQ(seen.size(), kBlocks);
    EXPECT_EQ(seen.back().slot, kBlocks + 5);
    EXPECT_EQ(seen.back().lineage, newer.self.lineage);
  }
}

TEST_P(RecoveryTest, RecordsOfOtherIdentitiesStay) {
  const auto other = make_chain(layout_, 10, 1);
  {
    auto store = open();
    fill(*store, chain_);
    for (std::uint32_t i = 0; i < 10; ++i) write(*store, kBlocks + i, other.blocks[i]);
    ASSERT_TRUE(store->close());
  }
  EXPECT_EQ(recover(*open()).size(), kBlocks + 10);
}

TEST_P(RecoveryTest, AnOverwrittenSlotHoldsTheNewBlock) {
  const auto other = make_chain(layout_, 1, 1);
  {
    auto store = open();
    fill(*store, chain_);
    RecordMeta meta = other.blocks[0];
    meta.sequence = 2'000;
    write(*store, 7, meta);
    ASSERT_TRUE(store->close());
  }
  const auto seen = recover(*open());
  ASSERT_EQ(seen.size(), kBlocks);
  EXPECT_EQ(seen.back().slot, 7U);
  EXPECT_EQ(seen.back().lineage, other.blocks[0].self.lineage);
}

// ---- Another layout, another cap ----------------------------------------------------------------

TEST_P(RecoveryTest, AnotherLayoutEmptiesTheDirectoryAndSaysSo) {
  write_and_close(chain_);
  const Layout before = layout_;
  use(test::swapped(layout_));
  log_.clear();
  {
    auto store = open();
    EXPECT_NE(log_.find("emptied"), std::string::npos) << log_;
    EXPECT_TRUE(recover(*store).empty());
  }
  use(before);  // and back: nothing came through
  EXPECT_TRUE(recover(*open()).empty());
}

TEST_P(RecoveryTest, ADamagedManifestEmptiesTheDirectory) {
  write_and_close(chain_);
  for (const std::string& text : {std::string(), std::string("garbage"), std::string(5'000, '7')}) {
    std::ofstream(cache_ + "/terrace.manifest", std::ios::binary) << text;
    EXPECT_TRUE(recover(*open()).empty());
  }
}

// What version 0.1 wrote before a manifest described its geometry.
TEST_P(RecoveryTest, AManifestOfAnotherVersionEmptiesTheDirectoryAndSaysSo) {
  write_and_close(chain_);
  std::ofstream(cache_ + "/terrace.manifest", std::ios::binary)
      << "terrace-cache 1\nrecord_format 1\nlayout " << to_hex(format_.layout_digest())
      << "\nheader_bytes " << format_.header_bytes() << "\nrecord_bytes " << format_.record_bytes()
      << "\nslot_count 200\n";
  log_.clear();
  EXPECT_TRUE(recover(*open()).empty());
  EXPECT_NE(log_.find("emptied"), std::string::npos) << log_;
  const auto now = parse_manifest(read_text(cache_ + "/terrace.manifest"));
  ASSERT_TRUE(now);
  EXPECT_EQ(now->format.layout_digest(), format_.layout_digest());
}

TEST_P(RecoveryTest, ALostDataFileIsAFreshStart) {
  write_and_close(chain_);
  std::filesystem::remove(data_);
  auto store = open();
  EXPECT_TRUE(recover(*store).empty());
  EXPECT_EQ(store->index().usable(), has_index());
}

TEST_P(RecoveryTest, AShortenedDataFileKeepsItsFirstRecords) {
  write_and_close(chain_);
  std::filesystem::resize_file(data_, 40 * format_.record_bytes());
  std::filesystem::remove_all(index_);
  expect_recovers(*open(), chain_, 40);
}

TEST_P(RecoveryTest, AnotherCapKeepsTheRecordsThatStillFit) {
  write_and_close(chain_);
  {
    auto larger = StoreTest::open(2 * GetParam());
    expect_recovers(*larger, chain_, kBlocks);
  }
  const std::uint64_t forty = 64 * KiB + 40 * (format_.record_bytes() + 32);
  {
    auto smaller = StoreTest::open(forty);
    ASSERT_EQ(smaller->slot_count(), 40U);
    expect_recovers(*smaller, chain_, 40);
  }
  expect_recovers(*open(), chain_, 40);  // what was cut does not come back
}

// Large records: a scan reads the headers only.
TEST_P(RecoveryTest, LargeRecordsAreFoundToo) {
  use(Layout::full(8, 4, 64, KvDtype::f16));  // 132 KiB each
  const auto chain = make_chain(layout_, 40);
  write_and_close(chain);
  std::filesystem::remove_all(index_);
  expect_recovers(*open(), chain, 40);
}

}  // namespace
}  // namespace terrace::internal
