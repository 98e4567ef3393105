// See terrace/key.hpp. What a chain looks like, byte by byte, is pinned by golden vectors in
// tests/unit/key_test.cpp: a change here that changes one of them throws every stored block away,
// and needs a new version below.
#include "terrace/key.hpp"

#include <bit>
#include <cstring>

#include "base/tagged_hash.hpp"

// A block is 80 bytes: the call and the dispatch would cost as much as the hash.
#define XXH_INLINE_ALL
#include <xxhash.h>

#ifndef TERRACE_KEY_BITS
#define TERRACE_KEY_BITS 128
#endif

namespace terrace {
namespace {

static_assert(std::endian::native == std::endian::little,
              "keys hash integers as they lie in memory, little-endian");
static_assert(sizeof(BlockKey) == 16 && sizeof(TokenId) == 4);
static_assert(TERRACE_KEY_BITS >= 1 && TERRACE_KEY_BITS <= 128);

constexpr std::uint64_t kKeySeed = 0x5445'5252'4143'4501;  // "TERRACE", version 1
constexpr std::size_t kTokensInline = 64;  // blocks up to here are hashed in one piece

constexpr std::uint64_t low_bits(unsigned bits) noexcept {
  return bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

BlockKey cut(std::uint64_t low, std::uint64_t high) noexcept {
  constexpr unsigned kHighBits = TERRACE_KEY_BITS > 64 ? TERRACE_KEY_BITS - 64 : 0;
  return {low & low_bits(TERRACE_KEY_BITS), high & low_bits(kHighBits)};
}

template <std::size_t kExtent>
BlockKey hash_short(const BlockKey& parent, std::span<const TokenId, kExtent> tokens) noexcept {
  std::byte bytes[sizeof parent + kTokensInline * sizeof(TokenId)];
  std::memcpy(bytes, &parent, sizeof parent);
  if (!tokens.empty()) std::memcpy(bytes + sizeof parent, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(bytes, sizeof parent + tokens.size_bytes(), kKeySeed);
  return cut(hash.low64, hash.high64);
}

// Same value as in one piece, for blocks of any length.
BlockKey hash_long(const BlockKey& parent, std::span<const TokenId> tokens) noexcept {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset_withSeed(&state, kKeySeed);
  XXH3_128bits_update(&state, &parent, sizeof parent);
  XXH3_128bits_update(&state, tokens.data(), tokens.size_bytes());
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return cut(hash.low64, hash.high64);
}

const char* first_absent(const ModelIdentity& identity) noexcept {
  constexpr Digest kZero{};  // no content has it: a digest that nobody filled in
  const auto absent = [&](const std::optional<Digest>& digest) {
    return !digest || *digest == kZero;
  };
  if (absent(identity.weights)) {
    return "identity.weights is absent: fill in weights_digest() of the checkpoint as it is loaded";
  }
  if (absent(identity.tokenizer)) {
    return "identity.tokenizer is absent: fill in a digest of all that maps text to token ids";
  }
  if (absent(identity.attention)) {
    return "identity.attention is absent: fill in a digest of the RoPE and attention configuration";
  }
  if (!identity.quantization || identity.quantization->empty()) {
    return "identity.quantization is absent: say how weights are used in compute, \"none\" where "
           "they are as loaded";
  }
  if (!identity.kv_scaling || identity.kv_scaling->empty()) {
    return "identity.kv_scaling is absent: name the scale scheme of the KV, \"none\" for plain "
           "dtypes";
  }
  return nullptr;
}

Digest root_digest(const ModelIdentity& identity, const Layout& layout, const Scope& scope) {
  return internal::TaggedHash("terrace.root.v1")
      .put("weights", identity.weights)
      .put("tokenizer", identity.tokenizer)
      .put("attention", identity.attention)
      .put("quantization", identity.quantization)
      .put("kv_scaling", identity.kv_scaling)
      .put("numerics", identity.numerics)
      .put("kv_dtype", static_cast<std::uint32_t>(layout.dtype))
      .put("geometry", layout.geometry_digest())
      .put("adapter", scope.adapter)
      .put("tenant_salt", scope.tenant_salt)
      .finish();
}

}  // namespace

Result<ChainPoint> chain_root(const ModelIdentity& identity, const Layout& layout,
                              const Scope& scope) {
  if (const char* message = first_absent(identity)) return fail(Code::identity_incomplete, message);
  // What a layout is called does not depend on whether this version can store it, so `unsupported`
  // has a root.
  if (const auto valid = layout.validate(); !valid && valid.error().code != Code::unsupported) {
    return unexpected(valid.error());
  }
  ChainPoint root;
  root.lineage = root_digest(identity, layout, scope);
  std::uint64_t words[2];
  std::memcpy(words, root.lineage.data(), sizeof words);
  root.key = cut(words[0], words[1]);
  return root;
}

BlockKey block_key(const BlockKey& parent, std::span<const TokenId> tokens) noexcept {
  // The default block has code of its own: with a length known to the compiler, a chain costs 7
  // instead of 15 ns a block (8,192 blocks: 60 us), and matching a long prompt is little else.
  if (tokens.size() == 16) return hash_short(parent, tokens.first<16>());
  if (tokens.size() <= kTokensInline) return hash_short(parent, tokens);
  return hash_long(parent, tokens);
}

ChainPoint chain_next(const ChainPoint& parent, std::span<const TokenId> tokens) {
  internal::Sha256 hash;
  hash.update(parent.lineage);
  hash.update(std::as_bytes(tokens));
  return {block_key(parent.key, tokens), hash.finish()};
}

}  // namespace terrace
