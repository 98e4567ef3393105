// What a request sees: match, fetch, reserve, commit in HBM alone, and who may hit what.
#include "cache/harness.hpp"

namespace terrace::test {
namespace {

TEST(CacheOpen, RefusesOptionsThatMeanNothing) {
  const auto code_of = [](Options options, Layout layout = toy_layout()) {
    const auto cache = Cache::open(std::move(options), std::move(layout));
    EXPECT_FALSE(cache);
    EXPECT_STRNE(cache.error().message, "");
    return cache.error().code;
  };
  EXPECT_EQ(code_of(Options{}), Code::invalid_argument);
  Options one_byte;
  one_byte.hbm_bytes = 1;
  EXPECT_EQ(code_of(one_byte), Code::invalid_argument);
  Options path_without_bytes = toy_options(8, 8);
  path_without_bytes.nvme_paths = {"/tmp/x"};
  EXPECT_EQ(code_of(path_without_bytes), Code::invalid_argument);
  Options nvme_without_dram = toy_options(8, 0, "/tmp/x");
  EXPECT_EQ(code_of(nvme_without_dram), Code::invalid_argument);
  Layout no_groups;
  EXPECT_EQ(code_of(toy_options(8, 8), no_groups), Code::invalid_argument);
}

TEST(CacheOpen, RefusesAnIncompleteIdentity) {
  const Cache cache = ToyEngine::open(toy_options(8, 0), toy_layout());
  ModelIdentity identity = toy_identity();
  identity.weights.reset();
  const auto model = cache.bind(identity);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, Code::identity_incomplete);
  EXPECT_TRUE(cache.bind(toy_identity()));
}

TEST(CacheHit, SecondRequestHitsAllButTheLastToken) {
  ToyEngine engine(toy_options(16, 0));
  const Tokens prompt = tokens_from(100, 32);
  EXPECT_EQ(engine.serve(prompt).cached_tokens, 0u);
  // 32 tokens are 4 whole blocks; the last token must be computed, so three blocks are a hit.
  const Served again = engine.serve(prompt);
  EXPECT_EQ(again.cached_tokens, 24u);
  EXPECT_EQ(again.cached_by_place[kHbm0], 24u);
  EXPECT_EQ(engine.serve(tokens_from(100, 33)).cached_tokens, 32u);
  engine.check_nothing_pinned();
}

TEST(CacheHit, EndsAtTheFirstDifferentBlock) {
  ToyEngine engine(toy_options(32, 0));
  engine.serve(tokens_from(0, 40));
  Tokens other = tokens_from(0, 40);
  other[17] = 9999;  // in the third block
  EXPECT_EQ(engine.serve(other).cached_tokens, 16u);
  EXPECT_EQ(engine.serve(tokens_from(0, 40)).cached_tokens, 32u);
}

TEST(CacheHit, ShortPromptsAndEmptyOnes) {
  ToyEngine engine(toy_options(8, 0));
  for (const std::size_t length : {0u, 1u, 7u, 8u})
    EXPECT_EQ(engine.serve(tokens_from(0, length)).cached_tokens, 0u);
  EXPECT_EQ(engine.serve(tokens_from(0, 9)).cached_tokens, 8u);
}

// Each pair: a change of identity or scope misses, the same one hits.
TEST(CacheIdentity, ScopesDoNotMix) {
  ToyEngine engine(toy_options(64, 0));
  const Tokens prompt = tokens_from(7, 25);
  const Scope salted{.adapter = {}, .tenant_salt = "a"};
  const Scope empty_salt{.adapter = {}, .tenant_salt = ""};
  const Scope adapted{.adapter = digest_of("a"), .tenant_salt = {}};
  for (const Scope& scope : {Scope{}, salted, empty_salt, adapted}) {
    EXPECT_EQ(engine.serve(prompt, scope).cached_tokens, 0u);
    EXPECT_EQ(engine.serve(prompt, scope).cached_tokens, 24u);
  }
}

TEST(CacheIdentity, ModelsDoNotMix) {
  ToyEngine engine(toy_options(64, 0));
  const Tokens prompt = tokens_from(7, 25);
  engine.serve(prompt);
  for (const auto& change : std::vector<void (*)(ModelIdentity&)>{
           [](ModelIdentity& id) { id.weights = digest_of("other"); },
           [](ModelIdentity& id) { id.tokenizer = digest_of("other"); },
           [](ModelIdentity& id) { id.attention = digest_of("other"); },
           [](ModelIdentity& id) { id.quantization = "fp8"; },
           [](ModelIdentity& id) { id.kv_scaling = "block"; },
           [](ModelIdentity& id) { id.numerics = "x"; },
           [](ModelIdentity& id) { id.numerics = ""; }}) {
    ModelIdentity identity = toy_identity();
    change(identity);
    const Model other = engine.cache().bind(identity).value();
    EXPECT_EQ(other.match(prompt)->block_count(), 0u);
  }
  const Model same = engine.cache().bind(toy_identity()).value();
  EXPECT_EQ(same.match(prompt)->block_count(), 3u);
}

TEST(CacheEviction, TheDeepestBlockOfTheColdestPrefixLeavesFirst) {
  ToyEngine engine(toy_options(8, 0));
  engine.serve(tokens_from(0, 33));     // 4 blocks
  engine.serve(tokens_from(1000, 33));  // 4 blocks: full
  engine.serve(tokens_from(0, 33));     // the first is the warmer one now
  engine.serve(tokens_from(2000, 17));  // 2 blocks have to leave
  EXPECT_EQ(engine.model().match(tokens_from(0, 33))->block_count(), 4u);
  EXPECT_EQ(engine.model().match(tokens_from(1000, 33))->block_count(), 2u);
  EXPECT_EQ(engine.model().match(tokens_from(2000, 17))->block_count(), 2u);
}

TEST(CacheEviction, LeasedBlocksStayAndNoSpaceIsSaid) {
  ToyEngine engine(toy_options(8, 0));
  const Tokens prompt = tokens_from(0, 64);
  ReadLease lease = engine.prefill(prompt);
  const auto refused = engine.model().reserve(lease, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::no_space);
  EXPECT_EQ(engine.model().reserve(lease, 9).error().code, Code::no_space);
  lease.release();
  EXPECT_EQ(engine.serve(tokens_from(500, 64)).cached_tokens, 0u);
  engine.check_nothing_pinned();
}

TEST(CacheEviction, AMatchIsPinnedBeforeItsSuffixTakesRoom) {
  ToyEngine engine(toy_options(4, 0));
  engine.serve(tokens_from(0, 17));    // 2 blocks
  engine.serve(tokens_from(500, 17));  // 2 blocks: full, and colder than what follows
  Tokens longer = tokens_from(0, 33);
  EXPECT_EQ(engine.serve(longer).cached_tokens,
            16u);  // evicts the others for its suffix, never its own prefix
}

TEST(CacheCommit, SecondProducerKeepsAPrivateCopy) {
  ToyEngine engine(toy_options(16, 0));
  const Tokens prompt = tokens_from(0, 17);
  Model& model = engine.model();
  FetchOp fetches[2];
  ReadLease leases[2];
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(model.fetch(model.match(prompt).value(), fetches[i]));
    engine.wait(fetches[i]);
    leases[i] = fetches[i].take_lease();
  }
  CommitResult results[2];
  for (int i = 0; i < 2; ++i) {
    WriteLease fresh = model.reserve(leases[i], 2).value();
    for (std::size_t b = 0; b < 2; ++b)
      engine.fill(fresh.slots()[b], engine.point_of(prompt, b, leases[i].prefix().root));
    results[i] = model.commit(fresh, std::span(prompt).first(16), {}, leases[i]).value();
  }
  EXPECT_EQ(results[0].published, 2u);
  EXPECT_EQ(results[1].duplicate, 2u);
  EXPECT_NE(leases[0].slots()[0].index, leases[1].slots()[0].index);
  EXPECT_EQ(leases[0].prefix().tip, leases[1].prefix().tip);
  leases[0].release();
  leases[1].release();
  const Stats stats = engine.cache().stats();
  EXPECT_EQ(stats.places[kHbm0].used_blocks, 2u);  // the private copy is gone
  EXPECT_EQ(stats.duplicate_blocks, 2u);
  EXPECT_EQ(engine.serve(prompt).cached_tokens, 16u);
}

TEST(CacheCommit, RefusesPartBlocksAndTooMany) {
  ToyEngine engine(toy_options(16, 0));
  ReadLease lease = engine.prefill(tokens_from(0, 1));
  WriteLease fresh = engine.model().reserve(lease, 1).value();
  const Tokens tokens = tokens_from(0, 16);
  EXPECT_EQ(engine.model().commit(fresh, std::span(tokens).first(5), {}, lease).error().code,
            Code::invalid_argument);
  EXPECT_EQ(engine.model().commit(fresh, tokens, {}, lease).error().code, Code::invalid_argument);
  EXPECT_EQ(fresh.slots().size(), 1u);  // nothing is lost
}

TEST(CacheCommit, FindableOnlyWhenTheProducingStreamHasPassed) {
  ToyEngine engine(toy_options(16, 0));
  CopyEngine& device = engine.cache().device();
  const Tokens prompt = tokens_from(0, 9);
  ReadLease lease = engine.prefill(tokens_from(5000, 1));
  WriteLease fresh = engine.model().reserve(lease, 1).value();
  std::byte from[64] = {};
  std::byte to[64] = {};
  const Copy copy{to, from, sizeof from};  // stands for the kernel that writes the block
  ASSERT_TRUE(device.copy(engine.stream(), std::span(&copy, 1)));
  const StreamPoint after = device.record(engine.stream()).value();
  ASSERT_TRUE(engine.model().commit(fresh, std::span(prompt).first(8), after, lease));
  {
    const Match match = engine.model().match(prompt).value();
    ASSERT_EQ(match.runs().size(), 1u);
    EXPECT_EQ(match.runs()[0].availability, Availability::in_flight);
  }
  device.synchronize(after);
  engine.cache().poll();
  const Match match = engine.model().match(prompt).value();
  EXPECT_EQ(match.runs()[0].availability, Availability::resident);
}

TEST(CacheLease, SlotsAreFreeOnlyWhenTheirLastUseHasPassed) {
  ToyEngine engine(toy_options(2, 0));
  CopyEngine& device = engine.cache().device();
  ReadLease lease = engine.prefill(tokens_from(0, 16));
  std::byte from[64] = {};
  std::byte to[64] = {};
  const Copy copy{to, from, sizeof from};  // stands for a kernel that still reads the blocks
  ASSERT_TRUE(device.copy(engine.stream(), std::span(&copy, 1)));
  const StreamPoint after = device.record(engine.stream()).value();
  lease.release(after);
  FetchOp fetch;
  ASSERT_TRUE(engine.model().fetch(engine.model().match(tokens_from(900, 17)).value(), fetch));
  engine.wait(fetch);
  ReadLease other = fetch.take_lease();
  if (device.query(after) == PointState::pending) {
    EXPECT_EQ(engine.model().reserve(other, 2).error().code, Code::no_space);
  }
  device.synchronize(after);
  engine.cache().poll();
  EXPECT_TRUE(engine.model().reserve(other, 2));
}

}  // namespace
}  // namespace terrace::test
