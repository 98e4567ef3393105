// What one operation on the block table costs with ten thousand, a million and ten million blocks:
// looking a chain up, and putting a block in where another has to leave.
//
//   table_bench [--sizes N,N,..] [--repeats N]
//
// The measure of a lookup is hashing alone: the keys of the same chains, chained XXH3-128 over parent
// and tokens. `match` looks up chains that somebody has looked up before; `first` those that nobody has;
// `mixed` is `match` where chains came in turns of a few blocks, as many users' do, so that no chain lies
// in one piece.
//
// That of a replacement is `bare`: what a table has to touch at the least, and nothing to decide. One
// line each of the hash table, for the block that leaves and for the one that comes, and all that is
// kept of the block.
//
// Twice: as fast as the processor can, one after another, where ten thousand blocks never leave its
// caches; and `cold`, where other work, as an engine's, goes through them before each operation.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <vector>

#include "io/held_clock.hpp"
#include "io/system_clock.hpp"
#include "measure.hpp"
#include "move/block_store.hpp"

namespace {

using namespace terrace;
using namespace terrace::internal;
using bench::do_other_work;
using bench::median;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kBlockTokens = 16;
constexpr std::uint32_t kChainBlocks = 8192;  // 128k tokens

double nanoseconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double, std::nano>(SteadyClock::now() - begin).count();
}

std::vector<TokenId> tokens_of_chain(std::uint32_t chain) {
  std::mt19937 random(chain);
  std::vector<TokenId> tokens(std::size_t{kChainBlocks} * kBlockTokens);
  for (TokenId& token : tokens) token = random();
  return tokens;
}

// Who puts a chain in, block by block.
class Chain {
 public:
  explicit Chain(std::uint32_t number) : tokens_(tokens_of_chain(number)) {}

  bool at_end() const { return depth_ == kChainBlocks; }
  RecordMeta next() {
    RecordMeta meta;
    meta.parent = tip_;
    meta.tokens = std::span(tokens_).subspan(std::size_t{depth_} * kBlockTokens, kBlockTokens);
    meta.self = tip_ = chain_next(tip_, meta.tokens);
    meta.depth = depth_++;
    return meta;
  }

  std::vector<BlockId> blocks;  // those that are in

 private:
  std::vector<TokenId> tokens_;
  ChainPoint tip_;
  std::uint32_t depth_ = 0;
};

class Table {
 public:
  // Chains take turns of 1 to `turn_max` blocks, `together` of them at a time.
  Table(std::uint32_t blocks, std::uint32_t together, std::uint32_t turn_max)
      : chains_(blocks / kChainBlocks),
        store_({{0, blocks, 0}, {}, kBlockTokens}, make_lru_policy(blocks + 1), time_, 1) {
    std::mt19937 random(1);
    for (std::uint32_t begin = 0; begin < chains_; begin += together) {
      std::vector<Chain> users;
      for (std::uint32_t i = begin; i < std::min(begin + together, chains_); ++i)
        users.emplace_back(i);
      while (!users.empty()) {
        for (Chain& user : users) {
          for (std::uint32_t turn = 1 + random() % turn_max; turn > 0 && !user.at_end(); --turn)
            insert(user.next(), user.blocks);
        }
        std::erase_if(users, [](const Chain& user) { return user.at_end(); });
      }
    }
  }

  // Once the table is full, the coldest block leaves.
  void insert(const RecordMeta& meta, std::vector<BlockId>& chain) {
    const std::uint32_t slot = store_.acquire_slot(kDram0, Loss::allowed);
    const BlockId id = store_.insert(meta, chain.empty() ? kNoBlock : chain.back());
    store_.attach(id, kDram0, slot);
    store_.finish_landing(id, kDram0);
    chain.push_back(id);
    if (const std::size_t last = chain.size() - 1; last >= BlockTable::kAhead)
      store_.table().note_ahead(chain[last - BlockTable::kAhead], id);
  }

  std::uint32_t chains() const { return chains_; }
  BlockTable& blocks() { return store_.table(); }

 private:
  SystemClock clock_;
  HeldClock time_{clock_};  // as under the cache's lock
  std::uint32_t chains_;
  BlockStore store_;
};

// ns a block.
struct Lookups {
  std::vector<double> first;
  std::vector<double> again;
};

double find(Table& table, const std::vector<TokenId>& tokens) {
  std::uint32_t found = 0;
  const auto begin = SteadyClock::now();
  table.blocks().find_chain({}, tokens, [&](std::size_t, BlockId) { return ++found > 0; });
  const double taken = nanoseconds_since(begin);
  if (found != kChainBlocks) throw std::runtime_error("a block that is there was not found");
  return taken / kChainBlocks;
}

// Chains in random order, so that none is in a cache because of the last one.
Lookups look_up(Table& table, std::uint32_t repeats, bool cold) {
  std::vector<std::uint32_t> order(table.chains());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::shuffle(order, std::mt19937(1));
  Lookups lookups;
  for (const std::uint32_t chain : order)
    lookups.first.push_back(find(table, tokens_of_chain(chain)));
  for (std::uint32_t i = 0; i < repeats; ++i) {
    if (cold) do_other_work();
    lookups.again.push_back(find(table, tokens_of_chain(order[i % order.size()])));
  }
  return lookups;
}

double hash(std::uint32_t repeats) {
  std::vector<double> costs;
  for (std::uint32_t i = 0; i < repeats; ++i) {
    const std::vector<TokenId> tokens = tokens_of_chain(i);
    std::vector<BlockKey> keys(kChainBlocks);
    const auto begin = SteadyClock::now();
    BlockKey key{};
    for (std::uint32_t at = 0; at < kChainBlocks; ++at) {
      key = block_key(key, std::span(tokens).subspan(std::size_t{at} * kBlockTokens, kBlockTokens));
      keys[at] = key;
    }
    costs.push_back(nanoseconds_since(begin) / kChainBlocks);
  }
  return median(costs);
}

// All that is hashed is made before the clock starts.
double replace(Table& table, std::uint32_t repeats, bool cold) {
  std::vector<double> costs;
  for (std::uint32_t i = 0; i < repeats; ++i) {
    if (cold) do_other_work();
    Chain chain(1'000'000'000 + i);
    std::vector<RecordMeta> metas;
    std::vector<ChainPoint> points;
    while (!chain.at_end()) points.push_back(metas.emplace_back(chain.next()).self);
    const auto begin = SteadyClock::now();
    for (std::size_t at = 0; at < metas.size(); ++at) {  // as a commit
      table.blocks().prefetch_turn(points, at);
      table.insert(metas[at], chain.blocks);
    }
    costs.push_back(nanoseconds_since(begin) / kChainBlocks);
  }
  return median(costs);
}

// The memory of a table without its rules.
class BareTable {
 public:
  explicit BareTable(std::uint32_t blocks) : lines_(blocks / kLineBlocks + 1), records_(blocks) {}

  double replace(std::uint32_t repeats, bool cold) {
    std::vector<double> costs;
    for (std::uint32_t i = 0; i < repeats; ++i) {
      if (cold) do_other_work();
      std::vector<std::size_t> homes(std::size_t{2} * kChainBlocks);  // leaves, comes, leaves, ..
      for (std::size_t& home : homes) home = random_() % lines_.size();
      const auto begin = SteadyClock::now();
      for (std::uint32_t at = 0; at < kChainBlocks; ++at) {
        prefetch_turn(homes, at);
        ++lines_[homes[2 * at]][0];
        ++lines_[homes[2 * at + 1]][0];
        records_[next_].fill(at);
        next_ = (next_ + 1) % records_.size();
      }
      costs.push_back(nanoseconds_since(begin) / kChainBlocks);
    }
    return median(costs);
  }

 private:
  static constexpr std::uint32_t kLineBlocks = 8;
  static constexpr std::size_t kTurn = BlockTable::kTurn;

  void prefetch_turn(std::span<const std::size_t> homes, std::size_t at) const {
    if (at % kTurn != 0) return;
    const std::size_t end = std::min(2 * (at + 2 * kTurn), homes.size());
    for (std::size_t i = 2 * (at + kTurn); i < end; ++i) prefetch_line(&lines_[homes[i]]);
    for (std::size_t i = next_ + kTurn; i < std::min(next_ + 2 * kTurn, records_.size()); ++i) {
      for (std::size_t word = 0; word < records_[i].size(); word += Line{}.size())
        prefetch_line(&records_[i][word]);
    }
  }

  using Line = std::array<std::uint64_t, 8>;
  HugeVector<Line> lines_;
  HugeVector<std::array<std::uint64_t, 26>> records_;  // a Block, its parent's key and its tokens
  std::size_t next_ = 0;
  std::mt19937_64 random_{1};
};

void measure(std::uint32_t blocks, std::uint32_t repeats, bool cold) {
  const double hashing = hash(repeats);
  Lookups mixed;
  {
    Table table(blocks, 64, 8);
    mixed = look_up(table, repeats, cold);
  }
  const double bare = BareTable(blocks).replace(repeats, cold);
  Table table(blocks, 1, kChainBlocks);
  const Lookups lookups = look_up(table, repeats, cold);
  fmt::print("{:>10} {:>5} {:>8.1f}", blocks, cold ? "cold" : "warm", hashing);
  for (const auto& costs : {lookups.again, lookups.first, mixed.again, mixed.first})
    fmt::print(" {:>7.1f} {:>6.2f}", median(costs), median(costs) / hashing);
  fmt::print(" {:>8.0f} {:>8.0f}\n", replace(table, repeats, cold), bare);
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
  fmt::print(
      "ns a block, and over hashing\n{:>10} {:>5} {:>8} {:>14} {:>14} {:>14} {:>14} {:>8} {:>8}\n",
      "blocks", "", "hashing", "match", "first", "mixed", "mixed first", "replace", "bare");
  for (const bool cold : {false, true}) {
    for (const std::uint32_t size : sizes) measure(size, repeats, cold);
  }
}
