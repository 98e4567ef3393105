// The block table against a model of it: whatever is inserted, erased and looked up, a chain is found
// as far as its blocks are there, and no block is found for another.
#include "index/block_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace terrace::internal {
namespace {

constexpr std::uint32_t kBlockTokens = 4;

std::vector<TokenId> tokens_of(const std::vector<int>& path) {
  std::vector<TokenId> tokens;
  for (const int step : path) tokens.insert(tokens.end(), kBlockTokens, step);
  return tokens;
}

ChainPoint root_of(int root) {
  ChainPoint point;
  point.key.low = root;
  point.lineage[0] = static_cast<std::byte>(root + 1);
  return point;
}

// A small tree of chains, so that blocks come back, with other parents, in places of others.
class TableModel {
 public:
  explicit TableModel(std::uint32_t capacity) : table_(capacity, kBlockTokens) {}

  // Returns: how many blocks of `path` are found, each of which must be the right one.
  std::size_t find(int root, const std::vector<int>& path) {
    std::size_t count = 0;
    ChainPoint point = root_of(root);
    const std::vector<TokenId> tokens = tokens_of(path);
    table_.find_chain(root_of(root), tokens, [&](std::size_t i, BlockId id) {
      EXPECT_EQ(i, count++);
      point = chain_next(point, std::span(tokens).subspan(i * kBlockTokens, kBlockTokens));
      EXPECT_EQ(table_[id].self(), point);
      return true;
    });
    return count;
  }

  std::size_t expected(int root, const std::vector<int>& path) const {
    std::size_t count = 0;
    while (count < path.size() && blocks_.contains(name(root, path, count + 1))) ++count;
    return count;
  }

  // The block at the end of `path`, with a link to its parent where that is there.
  bool insert(int root, const std::vector<int>& path) {
    if (blocks_.contains(name(root, path, path.size()))) return false;
    const std::vector<TokenId> tokens = tokens_of(path);
    ChainPoint point = root_of(root);
    RecordMeta meta;
    for (std::size_t i = 0; i < path.size(); ++i) {
      meta.parent = point;
      meta.tokens = std::span(tokens).subspan(i * kBlockTokens, kBlockTokens);
      meta.self = point = chain_next(point, meta.tokens);
    }
    const auto parent = blocks_.find(name(root, path, path.size() - 1));
    const BlockId id = table_.insert(meta, parent == blocks_.end() ? kNoBlock : parent->second);
    if (id == kNoBlock) return false;
    blocks_[name(root, path, path.size())] = id;
    return true;
  }

  bool erase(int root, const std::vector<int>& path) {
    const auto found = blocks_.find(name(root, path, path.size()));
    if (found == blocks_.end()) return false;
    table_.erase(found->second);
    blocks_.erase(found);
    return true;
  }

  void guess(BlockId behind, BlockId id) { table_.note_ahead(behind, id); }

  std::uint32_t size() const { return table_.size(); }
  std::size_t expected_size() const { return blocks_.size(); }
  BlockId id(int root, const std::vector<int>& path) const {
    return blocks_.at(name(root, path, path.size()));
  }

 private:
  using Name = std::pair<int, std::vector<int>>;
  static Name name(int root, const std::vector<int>& path, std::size_t length) {
    return {root, {path.begin(), path.begin() + static_cast<std::ptrdiff_t>(length)}};
  }

  BlockTable table_;
  std::map<Name, BlockId> blocks_;
};

TEST(BlockTable, FindsAChainAsFarAsItIsThere) {
  TableModel model(8);
  for (const auto& path : {std::vector{1}, {1, 2}, {1, 2, 3}}) ASSERT_TRUE(model.insert(0, path));
  EXPECT_EQ(model.find(0, {1, 2, 3, 4}), 3U);
  EXPECT_EQ(model.find(0, {1, 2, 4}), 2U);
  EXPECT_EQ(model.find(0, {2}), 0U);
  EXPECT_EQ(model.find(1, {1, 2, 3}), 0U) << "another root";
}

TEST(BlockTable, FindsEveryBranch) {
  TableModel model(16);
  for (const auto& path : {std::vector{1}, {1, 2}, {1, 3}, {1, 2, 4}, {1, 3, 4}})
    ASSERT_TRUE(model.insert(0, path));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(model.find(0, {1, 2, 4}), 3U);
    EXPECT_EQ(model.find(0, {1, 3, 4}), 3U);
  }
}

TEST(BlockTable, ABlockInThePlaceOfAChildIsNotTheChild) {
  TableModel model(3);
  for (const auto& path : {std::vector{1}, {1, 2}}) ASSERT_TRUE(model.insert(0, path));
  EXPECT_EQ(model.find(0, {1, 2}), 2U);
  const BlockId place = model.id(0, {1, 2});
  model.erase(0, {1, 2});
  EXPECT_EQ(model.find(0, {1, 2}), 1U);
  ASSERT_TRUE(model.insert(1, {2}));  // the same tokens
  ASSERT_EQ(model.id(1, {2}), place);
  EXPECT_EQ(model.find(0, {1, 2}), 1U);
  EXPECT_EQ(model.find(1, {2}), 1U);
}

TEST(BlockTable, ABlockInThePlaceOfAParentHasNoneOfItsChildren) {
  TableModel model(3);
  for (const auto& path : {std::vector{1}, {1, 2}}) ASSERT_TRUE(model.insert(0, path));
  const BlockId place = model.id(0, {1});
  model.erase(0, {1});
  ASSERT_TRUE(model.insert(0, {3}));
  ASSERT_EQ(model.id(0, {3}), place);
  EXPECT_EQ(model.find(0, {3, 2}), 1U);
  EXPECT_EQ(model.find(0, {1, 2}), 0U);
  ASSERT_TRUE(model.insert(0, {1}));
  EXPECT_EQ(model.find(0, {1, 2}), 2U) << "the child had stayed";
}

// Whoever inserts may name a block that has left, and another one in its place.
TEST(BlockTable, AStrangerIsNoParent) {
  BlockTable table(4, kBlockTokens);
  const std::vector<TokenId> one = tokens_of({1});
  const std::vector<TokenId> two = tokens_of({2});
  const ChainPoint first = chain_next(root_of(0), one);
  const BlockId stranger =
      table.insert({.self = first, .parent = root_of(0), .tokens = one}, kNoBlock);
  const ChainPoint other = chain_next(root_of(1), two);
  const BlockId block =
      table.insert({.self = other, .parent = root_of(1), .tokens = two}, stranger);
  ASSERT_NE(block, kNoBlock);
  EXPECT_EQ(table.parent_of(block), kNoBlock);
  std::size_t found = 0;
  const auto count = [&](std::size_t, BlockId) { return ++found > 0; };
  table.find_chain(root_of(0), tokens_of({1, 2}), count);
  EXPECT_EQ(found, 1U);
  table.find_chain(root_of(1), two, count);
  EXPECT_EQ(found, 2U);
}

TEST(BlockTable, LongChainsThatWereWalkedBefore) {
  TableModel model(200);
  std::vector<int> path;
  for (int depth = 0; depth < 100; ++depth) {
    path.push_back(depth);
    ASSERT_TRUE(model.insert(0, path));
    ASSERT_TRUE(model.insert(1, path));  // in turns
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(model.find(0, path), 100U);
    EXPECT_EQ(model.find(1, path), 100U);
  }
  path.resize(50);
  model.erase(1, path);
  path.resize(100, 7);
  EXPECT_EQ(model.find(1, path), 49U);
}

// Whatever is said of who stands ahead, and of blocks that have left, too.
TEST(BlockTable, DoesWhatItsModelDoes) {
  constexpr std::uint32_t kCapacity = 24;
  TableModel model(kCapacity);
  std::mt19937 random(1);
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  for (int i = 0; i < 200'000; ++i) {
    const int root = random() % 2;
    std::vector<int> path(1 + random() % 6);
    for (int& step : path) step = random() % 2;
    model.guess(random() % kCapacity, random() % 8 == 0 ? kNoBlock : random() % kCapacity);
    switch (random() % 4) {
      case 0:
        model.insert(root, path);
        break;
      case 1:
        model.erase(root, path);
        break;
      default:
        const std::size_t found = model.find(root, path);
        ASSERT_EQ(found, model.expected(root, path)) << "at " << i;
        ++(found == path.size() ? hits : misses);
    }
    ASSERT_EQ(model.size(), model.expected_size());
  }
  EXPECT_GT(hits, 1'000U);
  EXPECT_GT(misses, 1'000U);
}

}  // namespace
}  // namespace terrace::internal
