// Keys: complete, fail-closed identity (I1), deterministic (I3), and no two contents with one name
// (kinds KEY-IDENTITY and KEY-ENCODING). Golden values come from an independent program: Python's
// hashlib, and XXH3 of the C library over the documented bytes.
#include "terrace/key.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <clocale>
#include <locale>
#include <set>
#include <string>
#include <vector>

namespace terrace {
namespace {

Digest filled(int value) {
  Digest digest;
  digest.fill(static_cast<std::byte>(value));
  return digest;
}

ModelIdentity complete() {
  ModelIdentity identity;
  identity.weights = filled(1);
  identity.tokenizer = filled(2);
  identity.attention = filled(3);
  identity.quantization = "none";
  identity.kv_scaling = "none";
  return identity;
}

Layout layout() {
  return Layout::full(4, 2, 64, KvDtype::bf16);
}

Scope scope_of(std::optional<Digest> adapter, std::optional<std::string_view> salt) {
  Scope scope;
  scope.adapter = adapter;
  scope.tenant_salt = salt;
  return scope;
}
Scope salted(std::string_view salt) {
  return scope_of(std::nullopt, salt);
}

ChainPoint root(const Scope& scope = {}) {
  return *chain_root(complete(), layout(), scope);
}

std::vector<TokenId> golden_tokens(std::uint32_t count) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back(i * 2654435761U + count);
  return tokens;
}

// What a key of 128 bits becomes in a build that cuts keys.
BlockKey cut(std::uint64_t low, std::uint64_t high) {
  constexpr int kBits = TERRACE_KEY_BITS;
  const auto mask = [](int bits) {
    return bits <= 0 ? 0 : bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  };
  return {low & mask(kBits), high & mask(kBits - 64)};
}

// Different content: another lineage always, another key wherever keys are not cut for a test.
void expect_all_differ(const std::vector<ChainPoint>& points) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(points[i].lineage, points[j].lineage) << i << " and " << j;
      if (TERRACE_KEY_BITS == 128) {
        EXPECT_NE(points[i].key, points[j].key) << i << " and " << j;
      }
    }
  }
}

TEST(ChainRoot, I3GoldenVectors) {
  EXPECT_EQ(to_hex(root().lineage),
            "4ed5a8dd332f3a865ecb7377a77ad272debeb24538a4168e5348908dc30ed990");
  EXPECT_EQ(root().key, cut(0x863a2f33dda8d54e, 0x72d27aa77773cb5e));
  ModelIdentity identity = complete();
  identity.numerics = "cutlass";
  const auto full = chain_root(identity, layout(), scope_of(filled(9), "t1"));
  EXPECT_EQ(to_hex(full->lineage),
            "32af0d8b71a79095a7dbb45072e6790f3badea7039943cdf28ee3f8cb2ca3de7");
}

TEST(ChainRoot, I1EqualContentHasOneName) {
  const std::string salt = "tenant";
  const std::string same_salt_elsewhere = salt;
  EXPECT_EQ(root(salted(salt)), root(salted(same_salt_elsewhere)));
  EXPECT_EQ(root(), root());
}

TEST(ChainRoot, I1FailsClosedOnAnAbsentField) {
  const auto expect_refused = [](const char* field, auto remove) {
    ModelIdentity identity = complete();
    remove(identity);
    const auto result = chain_root(identity, layout());
    ASSERT_FALSE(result) << field;
    EXPECT_EQ(result.error().code, Code::identity_incomplete) << field;
    EXPECT_NE(std::string(result.error().message).find(field), std::string::npos)
        << result.error().message;
  };
  expect_refused("weights", [](ModelIdentity& identity) { identity.weights.reset(); });
  expect_refused("tokenizer", [](ModelIdentity& identity) { identity.tokenizer.reset(); });
  expect_refused("attention", [](ModelIdentity& identity) { identity.attention.reset(); });
  expect_refused("quantization", [](ModelIdentity& identity) { identity.quantization.reset(); });
  expect_refused("kv_scaling", [](ModelIdentity& identity) { identity.kv_scaling.reset(); });
  // Present, but nobody filled it in.
  expect_refused("weights", [](ModelIdentity& identity) { identity.weights = Digest{}; });
  expect_refused("tokenizer", [](ModelIdentity& identity) { identity.tokenizer = Digest{}; });
  expect_refused("quantization", [](ModelIdentity& identity) { identity.quantization = ""; });
  expect_refused("kv_scaling", [](ModelIdentity& identity) { identity.kv_scaling = ""; });
}

TEST(ChainRoot, RefusesAnInvalidLayoutButNamesWhatCannotBeStored) {
  const auto invalid = chain_root(complete(), Layout{});
  ASSERT_FALSE(invalid);
  EXPECT_EQ(invalid.error().code, Code::invalid_argument);
  Layout window = layout();
  window.groups[0].kind = GroupKind::sliding_window;
  EXPECT_TRUE(chain_root(complete(), window));
}

TEST(ChainRoot, I1EveryFieldOfTheIdentityCounts) {
  std::vector<ChainPoint> points = {root()};
  const auto with = [&](auto change) {
    ModelIdentity identity = complete();
    Layout shape = layout();
    change(identity, shape);
    points.push_back(*chain_root(identity, shape));
  };
  with([](ModelIdentity& i, Layout&) { i.weights = filled(7); });
  with([](ModelIdentity& i, Layout&) { i.tokenizer = filled(7); });
  with([](ModelIdentity& i, Layout&) { i.attention = filled(7); });
  with([](ModelIdentity& i, Layout&) { i.quantization = "fp8-e4m3"; });
  with([](ModelIdentity& i, Layout&) { i.kv_scaling = "fp8-e4m3"; });
  with([](ModelIdentity& i, Layout&) { i.numerics = ""; });
  with([](ModelIdentity& i, Layout&) { i.numerics = "none"; });
  with([](ModelIdentity&, Layout& l) { l.dtype = KvDtype::f16; });
  with([](ModelIdentity&, Layout& l) { l.block_tokens = 32; });
  with([](ModelIdentity&, Layout& l) { l.groups[0].first_layer = 1; });
  with([](ModelIdentity&, Layout& l) { std::swap(l.groups[0].kv_heads, l.groups[0].head_dim); });
  with([](ModelIdentity& i, Layout&) { std::swap(i.weights, i.tokenizer); });
  with([](ModelIdentity& i, Layout&) { std::swap(i.tokenizer, i.attention); });
  expect_all_differ(points);
}

TEST(ChainRoot, I5AdapterAndSaltDoNotPoseAsEachOther) {
  const Digest adapter = filled('X');
  const std::string salt(32, 'X');  // the very same bytes
  expect_all_differ({root(), root(scope_of(adapter, std::nullopt)), root(salted(salt)),
                     root(scope_of(adapter, salt)), root(salted("")), root(scope_of(adapter, "")),
                     root(scope_of(Digest{}, std::nullopt)),
                     root(salted(std::string_view("\0", 1)))});
}

TEST(BlockKey, I3GoldenVectors) {
  struct Golden {
    std::uint32_t tokens;
    std::uint64_t low, high;
    const char* lineage;
  };
  const Golden goldens[] = {
      {1, 0xf6ead95c62618e0a, 0xf925785029251b0d,
       "404a8b1124b2b759514d46c5491fb31317cf9cdf66692b70fdd22b942eed31d8"},
      {7, 0xfc70dcc584fb600a, 0x0f8e16446d78a99b,
       "b4942ee9100fab12b921865a86f9a2f640b52392655217332d978298da078ee2"},
      {16, 0x4acc1e802c47ad1b, 0xad9fa95962564c07,
       "944b9170f875dd613acda98afba004a32131822fcc3e5163e65bf6ba717f4352"},
      {64, 0xf5a444755fd70879, 0x5470327d2dadaf89,
       "f6b3d9ce0f7ab7e613f2e53526215f28c98eee1208c1a66f3f449f32f8b341e2"},
      {65, 0x7627b1749aeac64b, 0x731407014b43c600,
       "286a8d7327a2be69575e793f916ca3cd30940b3bdc625bf0d284bada9071b73f"},
      {300, 0x1cb0ee6dafa4b243, 0x13e93885c3261649,
       "ea6654e72f768c6c1d43cb8f0822229b4c94b7a6ac5715fe99af5ce24317a26f"},
  };
  ChainPoint start = root();
  start.key = {0x863a2f33dda8d54e,
               0x72d27aa77773cb5e};  // uncut, so that cut builds check the hash as well
  for (const Golden& golden : goldens) {
    const ChainPoint next = chain_next(start, golden_tokens(golden.tokens));
    EXPECT_EQ(next.key, cut(golden.low, golden.high)) << golden.tokens << " tokens";
    EXPECT_EQ(to_hex(next.lineage), golden.lineage) << golden.tokens << " tokens";
  }
}

TEST(BlockKey, ChainNextAgreesWithBlockKey) {
  const auto tokens = golden_tokens(16);
  EXPECT_EQ(chain_next(root(), tokens).key, block_key(root().key, tokens));
}

TEST(BlockKey, EveryBitOfATokenCounts) {
  for (const std::uint32_t length : {1U, 7U, 16U, 64U, 65U}) {
    std::vector<ChainPoint> points;
    for (int bit = -1; bit < 32; ++bit) {
      std::vector<TokenId> tokens(length, 65);
      if (bit >= 0) tokens.back() ^= TokenId{1} << bit;
      points.push_back(chain_next(root(), tokens));
    }
    expect_all_differ(points);
  }
}

TEST(BlockKey, LengthOrderAndPlaceCount) {
  const std::vector<TokenId> ascending = {1, 2, 3};
  const std::vector<TokenId> swapped = {2, 1, 3};
  const std::vector<TokenId> longer = {1, 2, 3, 0};
  const ChainPoint first = chain_next(root(), ascending);
  expect_all_differ({root(), first, chain_next(root(), swapped), chain_next(root(), longer),
                     chain_next(first, ascending), chain_next(root(salted("t")), ascending)});
}

TEST(BlockKey, ManyBlocksHaveManyKeys) {
  if (TERRACE_KEY_BITS < 128) GTEST_SKIP() << "keys are cut to " << TERRACE_KEY_BITS << " bits";
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  BlockKey key = root().key;
  for (TokenId i = 0; i < 100'000; ++i) {
    const TokenId tokens[] = {i % 3};
    key = block_key(key, tokens);
    seen.emplace(key.low, key.high);
  }
  EXPECT_EQ(seen.size(), 100'000U);
}

TEST(BlockKey, KeysStayWithinTheirBits) {
  BlockKey key = root().key;
  for (TokenId i = 0; i < 1000; ++i) {
    EXPECT_EQ(key, cut(key.low, key.high));
    const TokenId tokens[] = {i};
    key = block_key(key, tokens);
  }
}

// A locale with another decimal point and grouping, made here so that none needs to be installed.
struct Grouping : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(ChainRoot, I3DoesNotDependOnTheLocale) {
  const ChainPoint before = chain_next(root(), golden_tokens(16));
  const std::locale old = std::locale::global(std::locale(std::locale::classic(), new Grouping));
  const ChainPoint within = chain_next(root(), golden_tokens(16));
  std::locale::global(old);
  EXPECT_EQ(before, within);
}

}  // namespace
}  // namespace terrace
