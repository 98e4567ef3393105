// What a request costs the thread that serves it, through the public interface, in caches of ten
// thousand, a million and ten million blocks: bookkeeping alone, as every block is in HBM (a host
// device's) or is computed, and no byte moves.
//
//   request_bench [--sizes N,N,..] [--prompt-blocks N] [--repeats N]
//
// `hit` is a prompt that is there as a whole: match, fetch, take_lease, release. `new` is one of which
// nothing is, in a full cache, where each block makes another leave: reserve and commit, too. The
// measure of the latter is `naming`: keys and lineages of the same blocks, and nothing else.
//
// Twice: one request after another, and `cold`, where other work, as an engine's, goes through the
// processor's caches before each.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <vector>

#include "measure.hpp"
#include "terrace/cache.hpp"

namespace {

using namespace terrace;
using bench::do_other_work;
using bench::median;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kBlockTokens = 16;
constexpr std::uint64_t kBlockBytes = 256;  // the least that an arena gives a block

struct BenchOptions {
  std::vector<std::uint32_t> sizes{10'000, 1'000'000, 10'000'000};
  std::uint32_t prompt_blocks = 128;  // 2k tokens
  std::uint32_t repeats = 1001;
};

// Prompts of whole blocks and one token more, no two with a block in common.
std::vector<TokenId> prompt(std::uint32_t number, std::uint32_t blocks) {
  std::minstd_rand random(number + 1);
  std::vector<TokenId> tokens(std::size_t{blocks} * kBlockTokens + 1);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random());
  return tokens;
}

ModelIdentity bench_identity() {
  ModelIdentity identity;
  identity.weights = identity.tokenizer = identity.attention =
      sha256(std::as_bytes(std::span("request_bench")));
  identity.quantization = identity.kv_scaling = "none";
  return identity;
}

Options options_for(std::uint32_t blocks) {
  Options options;
  options.hbm_bytes = blocks * kBlockBytes;
  options.dram_bytes = 0;
  return options;
}

// ns a block.
struct Steps {
  double match = 0;
  double fetch = 0;
  double reserve = 0;
  double commit = 0;
  double release = 0;

  double sum() const { return match + fetch + reserve + commit + release; }
};

class Laps {
 public:
  explicit Laps(std::uint32_t blocks) : blocks_(blocks) {}
  void operator()(double& step) {
    const auto now = SteadyClock::now();
    step += std::chrono::duration<double, std::nano>(now - last_).count() / blocks_;
    last_ = now;
  }

 private:
  std::uint32_t blocks_;
  SteadyClock::time_point last_ = SteadyClock::now();
};

class Engine {
 public:
  Engine(std::uint32_t blocks, std::uint32_t prompt_blocks)
      : prompt_blocks_(prompt_blocks),
        prompts_(blocks / prompt_blocks),
        cache_(Cache::open(options_for(blocks), Layout::full(1, 1, 2, KvDtype::f32, kBlockTokens))
                   .value()),
        model_(cache_.bind(bench_identity()).value()) {
    for (std::uint32_t i = 0; i < prompts_ + prompts_ / 4; ++i) serve_new(false);
  }

  Steps serve_new(bool cold) { return serve(next_++, cold, 0); }
  // One of the last nine tenths, which are surely there.
  Steps serve_hit(bool cold) {
    const std::uint32_t back = 1 + static_cast<std::uint32_t>(random_()) % (prompts_ * 9 / 10);
    return serve(next_ - back, cold, prompt_blocks_);
  }

 private:
  Steps serve(std::uint32_t number, bool cold, std::uint32_t hit_blocks) {
    const std::vector<TokenId> tokens = prompt(number, prompt_blocks_);
    const auto whole = std::span(tokens).first(tokens.size() - 1);
    if (cold) do_other_work();
    Steps steps;
    Laps lap(prompt_blocks_);
    Match match = model_.match(tokens).value();
    lap(steps.match);
    if (match.block_count() != hit_blocks)
      throw std::runtime_error("the match is not what was served before");
    FetchOp op;
    if (!model_.fetch(std::move(match), op)) throw std::runtime_error("fetch failed");
    while (!op.done()) cache_.poll();
    ReadLease prefix = op.take_lease();
    lap(steps.fetch);
    if (hit_blocks == 0) {
      WriteLease fresh = model_.reserve(prefix, prompt_blocks_).value();
      lap(steps.reserve);
      const auto done = model_.commit(fresh, whole, {}, prefix);
      if (!done || done->published != prompt_blocks_) throw std::runtime_error("commit failed");
      lap(steps.commit);
    }
    prefix.release();
    op = FetchOp();
    lap(steps.release);
    return steps;
  }

  std::uint32_t prompt_blocks_;
  std::uint32_t prompts_;  // that the cache has room for
  std::uint32_t next_ = 0;
  std::mt19937 random_{1};
  Cache cache_;
  Model model_;
};

double naming(const BenchOptions& bench, bool cold) {
  std::vector<double> costs;
  for (std::uint32_t i = 0; i < bench.repeats; ++i) {
    const std::vector<TokenId> tokens = prompt(i, bench.prompt_blocks);
    if (cold) do_other_work();
    double cost = 0;
    Laps lap(bench.prompt_blocks);
    ChainPoint tip;
    for (std::size_t at = 0; at + 1 < tokens.size(); at += kBlockTokens)
      tip = chain_next(tip, std::span(tokens).subspan(at, kBlockTokens));
    lap(cost);
    if (tip == ChainPoint{}) throw std::logic_error("it has a name");
    costs.push_back(cost);
  }
  return median(costs);
}

double median(const std::vector<Steps>& all, double Steps::*step) {
  std::vector<double> values;
  for (const Steps& steps : all) values.push_back(steps.*step);
  return median(values);
}

double median_sum(const std::vector<Steps>& all) {
  std::vector<double> values;
  for (const Steps& steps : all) values.push_back(steps.sum());
  return median(values);
}

void measure(std::uint32_t blocks, const BenchOptions& bench, bool cold) {
  Engine engine(blocks, bench.prompt_blocks);
  std::vector<Steps> hit;
  std::vector<Steps> fresh;
  for (std::uint32_t i = 0; i < bench.repeats; ++i) hit.push_back(engine.serve_hit(cold));
  for (std::uint32_t i = 0; i < bench.repeats; ++i) fresh.push_back(engine.serve_new(cold));
  const double names = naming(bench, cold);
  fmt::print(
      "{:>10} {:>5} {:>6.1f} {:>7.1f} {:>7.1f} {:>7.1f} {:>7.1f} {:>7.1f} {:>7.2f} {:>7.1f} "
      "{:>7.1f} {:>7.1f} {:>7.1f} {:>7.1f}\n",
      blocks, cold ? "cold" : "warm", median_sum(hit), median(hit, &Steps::match),
      median(hit, &Steps::fetch), median(hit, &Steps::release), names, median_sum(fresh),
      median_sum(fresh) / names, median(fresh, &Steps::match), median(fresh, &Steps::fetch),
      median(fresh, &Steps::reserve), median(fresh, &Steps::commit),
      median(fresh, &Steps::release));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What a request costs the thread that serves it, by the size of the cache");
  BenchOptions bench;
  app.add_option("--sizes", bench.sizes, "Blocks in the cache")
      ->delimiter(',')
      ->check(CLI::Range(1'000, 50'000'000));
  app.add_option("--prompt-blocks", bench.prompt_blocks, "Blocks of 16 tokens in a prompt")
      ->check(CLI::Range(1, 500));
  app.add_option("--repeats", bench.repeats, "Requests of each kind; medians count")
      ->check(CLI::Range(1, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  fmt::print("ns a block of a prompt of {}; `over` is new over naming\n", bench.prompt_blocks);
  fmt::print(
      "{:>10} {:>5} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}\n",
      "blocks", "", "hit", "match", "fetch", "release", "naming", "new", "over", "match", "fetch",
      "reserve", "commit", "release");
  for (const bool cold : {false, true}) {
    for (const std::uint32_t size : bench.sizes) measure(size, bench, cold);
  }
}
