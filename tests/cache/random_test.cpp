// Random requests over few tokens (so that prefixes are shared and, with keys cut short, collide),
// random sizes, random cancellations, drops, restarts and damage, from one printed seed. The oracle
// is the content: every byte that comes back is a function of the chain it must belong to.
#include <fstream>
#include <random>

#include "cache/harness.hpp"

namespace terrace::test {
namespace {

class Scenario {
 public:
  explicit Scenario(std::uint64_t seed) : random_(seed) {
    hbm_blocks_ = 24 + pick(40);
    dram_blocks_ = pick(4) == 0 ? 0 : 8 + pick(40);
    with_nvme_ = dram_blocks_ > 0 && pick(3) != 0;
    open();
  }

  void go(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) step();
    leases_.clear();
    ops_.clear();
    EXPECT_TRUE(engine_->cache().flush(10s));
    engine_->wait_until_unpinned();
    engine_->check_conservation();
  }

  std::uint64_t hits() const { return hits_; }

 private:
  std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  Options options() {
    Options options =
        toy_options(hbm_blocks_, dram_blocks_, with_nvme_ ? folder_.path() : "", 512 * KiB);
    options.device = make_host_copy_engine(random_());
    options.io_uring = pick(4) != 0;
    options.io_queue_depth = 1 + pick(16);
    options.layer_copy_bytes = 1 + pick(4000);
    return options;
  }

  void open() { engine_ = std::make_unique<ToyEngine>(options()); }

  Tokens prompt() {
    Tokens tokens(1 + pick(80));
    // Blocks repeat one of three patterns: a deep, narrow tree of prefixes.
    for (std::size_t at = 0; at < tokens.size(); at += 8) {
      const TokenId pattern = pick(3) * 65536;
      for (std::size_t i = at; i < std::min(at + 8, tokens.size()); ++i)
        tokens[i] = pattern + static_cast<TokenId>(i - at);
    }
    return tokens;
  }

  Scope scope() { return pick(4) == 0 ? Scope{.adapter = {}, .tenant_salt = "other"} : Scope{}; }

  void step() {
    switch (pick(12)) {
      case 0:
        engine_->drop_soon({static_cast<PlaceId>(pick(2))});
        break;
      case 1:
        leases_.clear();
        break;
      case 2:
        cancel_or_forget();
        break;
      case 3:
        if (pick(6) == 0) restart();
        break;
      case 4:
        if (pick(4) == 0) damage();
        break;
      case 5:
        start_and_leave();
        break;
      default:
        request();
        break;
    }
    for (std::uint32_t i = pick(4); i > 0; --i) engine_->cache().poll();
  }

  void request() {
    if (leases_.size() >= 2) leases_.erase(leases_.begin());
    Served served;
    leases_.push_back(engine_->prefill(prompt(), scope(), &served));
    hits_ += served.cached_tokens;
  }

  void start_and_leave() {
    if (ops_.size() >= 3) ops_.erase(ops_.begin());
    FetchOp op;
    ASSERT_TRUE(engine_->model().fetch(engine_->model().match(prompt(), scope()).value(), op));
    ops_.push_back(std::move(op));
  }

  void cancel_or_forget() {
    if (ops_.empty()) return;
    if (pick(2) == 0) ops_.back().cancel();
    ops_.pop_back();
  }

  void restart() {
    leases_.clear();
    ops_.clear();
    (void)engine_->cache().close();
    engine_.reset();
    open();
  }

  // One random byte of the data file is flipped under the running cache.
  void damage() {
    if (!with_nvme_) return;
    std::fstream file(folder_ / "blocks.dat", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(0, std::ios::end);
    const auto at =
        static_cast<std::streamoff>(random_() % static_cast<std::uint64_t>(file.tellg()));
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ (1 << pick(8))));
  }

  std::mt19937_64 random_;
  TemporaryFolder folder_;
  std::uint32_t hbm_blocks_ = 0;
  std::uint32_t dram_blocks_ = 0;
  bool with_nvme_ = false;
  std::unique_ptr<ToyEngine> engine_;
  std::vector<ReadLease> leases_;
  std::vector<FetchOp> ops_;
  std::uint64_t hits_ = 0;
};

TEST(CacheRandom, NeverWrongBytes) {
  // Another seed, or more of them: TERRACE_SEED and TERRACE_SEEDS.
  const char* first = std::getenv("TERRACE_SEED");
  const char* count = std::getenv("TERRACE_SEEDS");
  const std::uint64_t from = first != nullptr ? std::stoull(first) : 1;
  const std::uint64_t seeds = count != nullptr ? std::stoull(count) : 50;
  std::uint64_t hits = 0;
  for (std::uint64_t seed = from; seed < from + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario scenario(seed);
    scenario.go(150);
    hits += scenario.hits();
    if (HasFailure()) return;
  }
  EXPECT_GT(hits, seeds * 100) << "hardly anything was ever hit: the oracle has nothing to look at";
  std::printf("%llu seeds, %llu cached tokens checked\n", static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(hits));
}

}  // namespace
}  // namespace terrace::test
