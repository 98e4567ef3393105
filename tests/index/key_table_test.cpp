// The table from keys to numbers against a model of it: whatever was inserted and erased before, a
// number is found under its key while it is there, and not after.
#include "index/key_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace terrace::internal {
namespace {

// At home as far into the table as `home` lies in its range.
BlockKey key_of(std::uint32_t home, std::uint32_t tag) {
  return {.low = std::uint64_t{home} << 32 | tag};
}

bool holds(const KeyTable& table, const BlockKey& key, std::uint32_t id) {
  return table.find(key, [&](std::uint32_t found) { return found == id; }) == id;
}

// Numbers that come and go, each under any of `keys` while it is there.
class KeyTableModel {
 public:
  explicit KeyTableModel(std::vector<BlockKey> keys) : keys_(std::move(keys)), table_(kCapacity) {}

  // More numbers than there is room for, so that the table is full most of the time.
  void churn(int changes) {
    std::mt19937 random(1);
    for (int i = 0; i < changes; ++i) {
      change(random() % kIds, keys_[random() % keys_.size()]);
      if (i % 64 != 0) continue;
      for (std::uint32_t id = 0; id < kIds; ++id) ASSERT_NO_FATAL_FAILURE(expect_as_it_is(id));
    }
    EXPECT_GT(there_.size(), kCapacity / 2);
  }

 private:
  static constexpr std::uint32_t kCapacity = 50;
  static constexpr std::uint32_t kIds = 60;

  void change(std::uint32_t id, const BlockKey& key) {
    if (const auto found = there_.find(id); found != there_.end()) {
      table_.erase(found->second, id);
      there_.erase(found);
    } else if (there_.size() < kCapacity) {
      table_.insert(key, id);
      there_.emplace(id, key);
    }
  }

  void expect_as_it_is(std::uint32_t id) const {
    if (const auto found = there_.find(id); found != there_.end()) {
      ASSERT_TRUE(holds(table_, found->second, id)) << id;
    } else {
      for (const BlockKey& key : keys_) ASSERT_FALSE(holds(table_, key, id)) << id;
    }
  }

  std::vector<BlockKey> keys_;
  KeyTable table_;
  std::map<std::uint32_t, BlockKey> there_;
};

TEST(KeyTable, FindsWhatIsThereUnderManyKeys) {
  std::vector<BlockKey> keys;
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) keys.push_back({random(), random()});
  KeyTableModel(keys).churn(20'000);
}

// Lines overflow into the next one, and from the last one into the first.
TEST(KeyTable, FindsWhatIsThereUnderKeysOfOneLine) {
  for (const std::uint32_t home : {0u, 0xffffffffu})
    KeyTableModel({key_of(home, 0), key_of(home, 1), key_of(home, 7)}).churn(20'000);
}

TEST(KeyTable, FindsWhatIsThereUnderOneKey) {
  KeyTableModel({key_of(0, 0), key_of(0x80000000u, 0)}).churn(20'000);
}

// Each of two lines has been full when somebody came; nobody may look for an end that there is not.
TEST(KeyTable, ALookupEndsWhereEveryLineWasPassed) {
  KeyTable table(13);
  const BlockKey first = key_of(0, 5);
  const BlockKey second = key_of(0xffffffffu, 5);
  for (std::uint32_t id = 0; id < 13; ++id) table.insert(first, id);  // the last one goes past
  for (std::uint32_t id = 0; id < 12; ++id) table.erase(first, id);
  for (std::uint32_t id = 20; id < 32; ++id) table.insert(second, id);  // here, too
  EXPECT_FALSE(holds(table, first, 99));
  EXPECT_FALSE(holds(table, second, 99));
  EXPECT_TRUE(holds(table, first, 12));
  EXPECT_TRUE(holds(table, second, 31));
}

// Where nobody has gone past any more, lookups do not either.
TEST(KeyTable, AnErasureLeavesNothingBehind) {
  KeyTable table(13);
  const BlockKey first = key_of(0, 5);
  const BlockKey second = key_of(0xffffffffu, 5);
  std::vector<std::uint32_t> asked;
  const auto ask = [&](std::uint32_t id) {
    asked.push_back(id);
    return false;
  };
  for (std::uint32_t id = 0; id < 12; ++id) table.insert(first, id);
  table.insert(second, 20);
  table.insert(first, 12);
  table.find(first, ask);
  EXPECT_EQ(asked.size(), 14U) << "it looks into both lines";
  table.erase(first, 12);
  asked.clear();
  table.find(first, ask);
  EXPECT_EQ(asked.size(), 12U);
}

TEST(KeyTable, AsksAboutEveryNumberUnderAKey) {
  KeyTable table(100);
  const BlockKey key = key_of(1, 2);
  for (std::uint32_t id = 0; id < 30; ++id) table.insert(key, id);
  std::set<std::uint32_t> asked;
  const auto none = [&](std::uint32_t id) { return !asked.insert(id).second; };
  EXPECT_EQ(table.find(key, none), KeyTable::kNone) << "one was asked about twice";
  EXPECT_EQ(asked.size(), 30U);
}

TEST(KeyTable, AnEmptyOneHasNothing) {
  KeyTable table(0);
  EXPECT_FALSE(holds(table, key_of(0, 0), 0));
}

}  // namespace
}  // namespace terrace::internal
