// Proves that the crash tests can fail: damage that a kill might leave behind is made by hand, and
// the examination must see each. The damage that the library must see is a miss and a counter, and
// never bytes.
#include <sys/file.h>

#include <algorithm>
#include <fstream>

#include "crash/ground.hpp"

namespace terrace::test {
namespace {

using internal::RecordMeta;
using internal::Verdict;

std::string name_of(const testing::TestParamInfo<Geometry>& info) {
  return info.param.name;
}

class CrashCanary : public testing::TestWithParam<Geometry> {
 protected:
  static constexpr std::uint32_t kChains = 8;
  static constexpr std::uint64_t kBlocks =
      24;  // of 2 families: 2 shared, and 1 to 4 for each chain

  void SetUp() override {
    if (!Examination::keys_tell_blocks_apart()) GTEST_SKIP() << "keys are cut in this build";
    ground_.kill_after(
        [](Life& life) {
          life.serve_chains(kChains);
          life.flush();
          life.wait();
        },
        1);
    slots_ = file().slots();
    ASSERT_EQ(slots_.size(), kBlocks);
  }

  DataFile file() const { return DataFile(GetParam(), ground_.directory()); }

  AlignedBytes read(std::uint32_t slot) const {
    AlignedBytes record(file().format().record_bytes());
    EXPECT_TRUE(file().read(slot, record.span()));
    return record;
  }
  std::span<std::byte> payload_of(const AlignedBytes& record) const {
    return record.span().subspan(file().format().header_bytes());
  }

  // The damage is seen by the library, and by the count of what is warm.
  void expect_lost(std::uint64_t corrupt) {
    EXPECT_EQ(ground_.examination(true), 0);
    EXPECT_EQ(ground_.findings().resident, kBlocks);
    EXPECT_LT(ground_.findings().warm, kBlocks);
    EXPECT_EQ(ground_.findings().corrupt, corrupt);
  }
  void expect_all_warm() {
    EXPECT_EQ(ground_.examination(true), 0);
    EXPECT_EQ(ground_.findings().resident, kBlocks);
    EXPECT_EQ(ground_.findings().flushed, kBlocks);
    EXPECT_EQ(ground_.findings().warm, kBlocks);
    EXPECT_EQ(ground_.findings().corrupt, 0U);
  }
  void expect_the_examination_fails() { EXPECT_NE(ground_.examination(true, false), 0); }

  Ground ground_{GetParam()};
  std::vector<std::uint32_t> slots_;
};

INSTANTIATE_TEST_SUITE_P(Directories, CrashCanary, testing::Values(kScan, kIndex), name_of);

TEST_P(CrashCanary, WithoutDamageAllIsWarm) {
  ground_.forget_index();
  expect_all_warm();
}

// ---- What the library must see ------------------------------------------------------------------

TEST_P(CrashCanary, AFlippedBitOfAPayloadIsAMissAndACounter) {
  ground_.forget_index();
  const AlignedBytes record = read(slots_[5]);
  payload_of(record)[1234] ^= std::byte{0x10};
  file().write(slots_[5], record.span());
  expect_lost(1);
}

TEST_P(CrashCanary, ATornRecordIsAMissAndACounter) {
  ground_.forget_index();
  const AlignedBytes record = read(slots_[5]);
  const auto payload = payload_of(record);
  std::ranges::fill(payload.subspan(payload.size() / 2), std::byte{0});
  file().write(slots_[5], record.span());
  expect_lost(1);
}

TEST_P(CrashCanary, PayloadsInEachOthersPlaceAreMisses) {
  ground_.forget_index();
  const AlignedBytes a = read(slots_[3]);
  const AlignedBytes b = read(slots_[9]);
  std::ranges::swap_ranges(payload_of(a), payload_of(b));
  file().write(slots_[3], a.span());
  file().write(slots_[9], b.span());
  expect_lost(2);
}

// A record says what it is: a scan finds it wherever it lies, and an index that names another place
// is not believed.
TEST_P(CrashCanary, RecordsInEachOthersSlotAreFoundByAScanOnly) {
  const AlignedBytes a = read(slots_[3]);
  const AlignedBytes b = read(slots_[9]);
  file().write(slots_[3], b.span());
  file().write(slots_[9], a.span());
  EXPECT_EQ(ground_.examination(true), 0);
  if (ground_.has_index()) {
    EXPECT_LT(ground_.findings().warm, kBlocks);
    EXPECT_GE(ground_.findings().corrupt, 1U);
  } else {
    EXPECT_EQ(ground_.findings().warm, kBlocks);
    EXPECT_EQ(ground_.findings().corrupt, 0U);
  }
}

// As after a power cut that took a record and left its entry in the index.
TEST_P(CrashCanary, ALostRecordIsAMiss) {
  const AlignedBytes nothing(file().format().record_bytes());
  std::ranges::fill(nothing.span(), std::byte{0});
  const std::uint64_t believed = ground_.has_index() ? 1 : 0;  // until it is read
  file().write(slots_[0], nothing.span());
  expect_lost(believed);
}

TEST_P(CrashCanary, I22AnIndexOfGarbageCostsNothing) {
  if (!ground_.has_index()) GTEST_SKIP() << "there is no index";
  std::ofstream(ground_.directory() + "/index/CURRENT", std::ios::binary) << "garbage";
  expect_all_warm();
}

// ---- What the examination must see --------------------------------------------------------------

// A record whose digests are right, over bytes that are not: no library could tell.
TEST_P(CrashCanary, WrongBytesAreSeen) {
  const AlignedBytes record = read(slots_[5]);
  RecordMeta meta;
  ASSERT_EQ(file().format().parse(record.span(), meta), Verdict::good);
  payload_of(record)[0] ^= std::byte{1};
  file().format().seal(record.span(), meta);
  file().write(slots_[5], record.span());
  expect_the_examination_fails();
}

TEST_P(CrashCanary, ABlockThatWasNeverCommittedIsSeen) {
  ground_.forget_index();
  const AlignedBytes record = read(slots_[0]);
  RecordMeta meta;
  ASSERT_EQ(file().format().parse(record.span(), meta), Verdict::good);
  const Tokens prompt = prompt_of(GetParam(), (kChains / kFamily + 1) * kFamily);
  meta.parent = chain_root(toy_identity(), GetParam().layout()).value();
  meta.tokens = std::span(prompt).first(GetParam().block_tokens);
  meta.self = chain_next(meta.parent, meta.tokens);
  meta.depth = 0;
  file().format().seal(record.span(), meta);
  const std::uint32_t unused = *std::ranges::max_element(slots_) + 1;
  file().write(unused, record.span());
  expect_the_examination_fails();
}

TEST_P(CrashCanary, ADirectoryAboveItsCapIsSeen) {
  std::ofstream(ground_.directory() + "/left-over", std::ios::binary)
      << std::string(GetParam().nvme_bytes / 4, 'x');
  expect_the_examination_fails();
}

TEST_P(CrashCanary, ALockThatIsStillHeldIsSeen) {
  const int lock = ::open((ground_.directory() + "/terrace.lock").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0) << "the killed process holds it still";
  expect_the_examination_fails();
  ::close(lock);
}

}  // namespace
}  // namespace terrace::test
