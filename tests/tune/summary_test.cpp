// What records add up to: chains with gaps, records twice, percentiles, several models.
#include "tune/summary.hpp"

#include <gtest/gtest.h>

namespace terrace::tune {
namespace {

using internal::Verdict;

Digest digest(std::uint8_t model, std::uint32_t number) {
  Digest value{};
  value[0] = static_cast<std::byte>(model);
  value[1] = static_cast<std::byte>(number);
  value[2] = static_cast<std::byte>(number >> 8);
  value[31] = std::byte{1};
  return value;
}

// Block `depth` of the one chain of `model`, in a slot of its own.
Record block(std::uint8_t model, std::uint32_t depth, std::uint64_t sequence = 10) {
  Record record;
  record.slot = model * 1000 + depth;
  record.verdict = Verdict::good;
  record.root = digest(model, 0xffff);
  record.self.lineage = digest(model, depth);
  record.parent = depth == 0 ? record.root : digest(model, depth - 1);
  record.depth = depth;
  record.tokens = 16;
  record.sequence = sequence;
  return record;
}

std::vector<Record> chain(std::uint8_t model, std::uint32_t length) {
  std::vector<Record> records;
  for (std::uint32_t depth = 0; depth < length; ++depth) records.push_back(block(model, depth));
  return records;
}

TEST(TuneSummary, OfNothingIsNothing) {
  const Summary summary = summarise({});
  EXPECT_EQ(summary.good, 0U);
  EXPECT_TRUE(summary.models.empty());
  EXPECT_EQ(summary.sequence_min, 0U);
  EXPECT_EQ(summary.depth_max, 0U);
}

TEST(TuneSummary, AWholeChain) {
  const Summary summary = summarise(chain(1, 100));
  EXPECT_EQ(summary.good, 100U);
  EXPECT_EQ(summary.tokens, 1600U);
  EXPECT_EQ(summary.first_blocks, 1U);
  EXPECT_EQ(summary.orphans, 0U);
  EXPECT_EQ(summary.unreachable, 0U);
  EXPECT_EQ(summary.duplicates, 0U);
  EXPECT_EQ(summary.depth_p50, 49U);
  EXPECT_EQ(summary.depth_p90, 89U);
  EXPECT_EQ(summary.depth_max, 99U);
}

TEST(TuneSummary, OneBlockIsEveryPercentile) {
  const Summary summary = summarise({block(1, 7)});
  EXPECT_EQ(summary.depth_p50, 7U);
  EXPECT_EQ(summary.depth_p90, 7U);
  EXPECT_EQ(summary.depth_max, 7U);
}

TEST(TuneSummary, AGapMakesOneOrphanAndTheRestUnreachable) {
  auto records = chain(1, 10);
  records.erase(records.begin() + 4);
  const Summary summary = summarise(records);
  EXPECT_EQ(summary.orphans, 1U);
  EXPECT_EQ(summary.unreachable, 5U);
  records.erase(records.begin());
  EXPECT_EQ(summarise(records).orphans, 2U);
  EXPECT_EQ(summarise(records).unreachable, 8U);
  EXPECT_EQ(summarise(records).first_blocks, 0U);
}

TEST(TuneSummary, ARefusedRecordIsNoParent) {
  auto records = chain(1, 10);
  records[4].verdict = Verdict::payload_damaged;
  records[8].verdict = Verdict::payload_damaged;
  records[9].os_error = 5;
  const Summary summary = summarise(records);
  EXPECT_EQ(summary.good, 7U);
  EXPECT_EQ(summary.orphans, 1U);
  EXPECT_EQ(summary.unreachable, 3U);
  EXPECT_EQ(summary.unreadable, 1U);
  ASSERT_EQ(summary.refused.size(), 1U);
  EXPECT_EQ(summary.refused.at(Verdict::payload_damaged), 2U);
}

TEST(TuneSummary, ARecordTwiceIsOneBlock) {
  auto records = chain(1, 10);
  records.push_back(block(1, 3, 99));
  records.push_back(block(1, 3, 4));
  const Summary summary = summarise(records);
  EXPECT_EQ(summary.good, 12U);
  EXPECT_EQ(summary.duplicates, 2U);
  EXPECT_EQ(summary.tokens, 160U);
  EXPECT_EQ(summary.models.at(0).blocks, 10U);
  EXPECT_EQ(summary.sequence_min, 4U);
  EXPECT_EQ(summary.sequence_max, 99U);
}

TEST(TuneSummary, ModelsStandByTheirSize) {
  auto records = chain(1, 3);
  for (const Record& record : chain(2, 20)) records.push_back(record);
  records.push_back(block(3, 0));
  const Summary summary = summarise(records);
  ASSERT_EQ(summary.models.size(), 3U);
  EXPECT_EQ(summary.models[0].root, block(2, 0).root);
  EXPECT_EQ(summary.models[0].blocks, 20U);
  EXPECT_EQ(summary.models[0].tokens, 320U);
  EXPECT_EQ(summary.models[2].root, block(3, 0).root);
  EXPECT_EQ(summary.first_blocks, 3U);
}

}  // namespace
}  // namespace terrace::tune
