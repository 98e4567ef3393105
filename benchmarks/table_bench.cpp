// What one operation on the block table costs with ten thousand, a million and ten million blocks:
// looking a chain up, and putting a block in where another has to leave.
//
//   table_bench [--sizes N,N,..] [--repeats N]
//
// The limit of a lookup is hashing alone: the keys of the same chains, chained XXH3-128 over parent
// and tokens, which a match cannot do without.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <random>
#include <vector>

#include "io/system_clock.hpp"
#include "move/block_store.hpp"

namespace {

using namespace terrace;
using namespace terrace::internal;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kBlockTokens = 16;
constexpr std::uint32_t kChainBlocks = 8192;  // 128k tokens

double nanoseconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double, std::nano>(SteadyClock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::vector<TokenId> tokens_of_chain(std::uint32_t chain) {
  std::mt19937 random(chain);
  std::vector<TokenId> tokens(std::size_t{kChainBlocks} * kBlockTokens);
  for (TokenId& token : tokens) token = random();
  return tokens;
}

class Table {
 public:
  explicit Table(std::uint32_t blocks)
      : store_({{0, blocks, 0}, {}, kBlockTokens}, make_lru_policy(blocks + 1), clock_, 1) {
    for (std::uint32_t chain = 0; chain < blocks / kChainBlocks; ++chain) add(chain);
    chains_ = blocks / kChainBlocks;
  }

  // A chain that is new takes slots of the coldest blocks once the table is full.
  void add(std::uint32_t chain) {
    const std::vector<TokenId> tokens = tokens_of_chain(chain);
    ChainPoint tip{};
    BlockId parent = kNoBlock;
    for (std::uint32_t i = 0; i < kChainBlocks; ++i) {
      RecordMeta meta;
      meta.parent = tip;
      meta.tokens = std::span(tokens).subspan(std::size_t{i} * kBlockTokens, kBlockTokens);
      meta.self = tip = chain_next(tip, meta.tokens);
      meta.depth = i;
      insert(meta, parent);
    }
  }

  void insert(const RecordMeta& meta, BlockId& parent) {
    const std::uint32_t slot = store_.acquire_slot(kDram0, Loss::allowed);
    parent = store_.insert(meta, parent);
    store_.attach(parent, kDram0, slot);
    store_.finish_landing(parent, kDram0);
  }

  std::uint32_t chains() const { return chains_; }
  const BlockTable& blocks() const { return store_.table(); }

 private:
  SystemClock clock_;
  BlockStore store_;
  std::uint32_t chains_ = 0;
};

struct Cost {
  double find_ns = 0;  // a block, hashing included
  double hash_ns = 0;
  double insert_ns = 0;  // a block, hashing and lineage left out
};

// Returns: ns a block of matching `chain`, hashing included, and of hashing alone.
std::pair<double, double> match_once(const Table& table, const std::vector<TokenId>& tokens) {
  std::vector<BlockKey> keys(kChainBlocks);
  const auto hash = [&] {
    BlockKey key{};
    for (std::uint32_t i = 0; i < kChainBlocks; ++i) {
      key = block_key(key, std::span(tokens).subspan(std::size_t{i} * kBlockTokens, kBlockTokens));
      keys[i] = key;
    }
  };
  auto begin = SteadyClock::now();
  hash();
  const double hashing = nanoseconds_since(begin);
  begin = SteadyClock::now();
  hash();
  std::uint32_t found = 0;
  table.blocks().find_chain(keys, Digest{}, tokens,
                            [&](std::size_t, BlockId) { return ++found > 0; });
  if (found != kChainBlocks) throw std::runtime_error("a block that is there was not found");
  return {nanoseconds_since(begin) / kChainBlocks, hashing / kChainBlocks};
}

Cost measure(std::uint32_t blocks, std::uint32_t repeats) {
  Table table(blocks);
  std::mt19937 random(1);
  std::vector<double> finds;
  std::vector<double> hashes;
  for (std::uint32_t i = 0; i < repeats; ++i) {
    const auto [find, hash] = match_once(table, tokens_of_chain(random() % table.chains()));
    finds.push_back(find);
    hashes.push_back(hash);
  }
  // Inserting: all that is hashed is made before the clock starts.
  std::vector<double> inserts;
  for (std::uint32_t i = 0; i < repeats; ++i) {
    const std::vector<TokenId> tokens = tokens_of_chain(1'000'000'000 + i);
    std::vector<RecordMeta> metas(kChainBlocks);
    ChainPoint tip{};
    for (std::uint32_t at = 0; at < kChainBlocks; ++at) {
      metas[at].parent = tip;
      metas[at].tokens = std::span(tokens).subspan(std::size_t{at} * kBlockTokens, kBlockTokens);
      metas[at].self = tip = chain_next(tip, metas[at].tokens);
      metas[at].depth = at;
    }
    BlockId parent = kNoBlock;
    const auto begin = SteadyClock::now();
    for (const RecordMeta& meta : metas) table.insert(meta, parent);
    inserts.push_back(nanoseconds_since(begin) / kChainBlocks);
  }
  return {median(finds), median(hashes), median(inserts)};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What an operation on the block table costs, by its size");
  std::vector<std::uint32_t> sizes{10'000, 1'000'000, 10'000'000};
  std::uint32_t repeats = 51;
  app.add_option("--sizes", sizes, "Blocks in the table")
      ->delimiter(',')
      ->check(CLI::Range(8192, 50'000'000));
  app.add_option("--repeats", repeats, "Chains looked up and put in; medians count")
      ->check(CLI::Range(1, 100'000));
  CLI11_PARSE(app, argc, argv);
  fmt::print("{:>10} {:>14} {:>12} {:>8} {:>14}\n", "blocks", "match ns/block", "hash ns", "ratio",
             "replace ns");
  for (const std::uint32_t size : sizes) {
    const Cost cost = measure(size, repeats);
    fmt::print("{:>10} {:>14.1f} {:>12.1f} {:>8.2f} {:>14.1f}\n", size, cost.find_ns, cost.hash_ns,
               cost.find_ns / cost.hash_ns, cost.insert_ns);
  }
}
