#include "sim/universe.hpp"

#include <algorithm>

#include "cache/harness.hpp"

namespace terrace::sim {
namespace {

constexpr std::uint32_t kChains = 14;
constexpr std::uint64_t kAlignment = 4096;  // of records
constexpr std::uint32_t kBlocksMax = 9;     // of a chain
constexpr std::uint32_t kPatterns = 3;      // of the tokens of a block

// From one sector of payload to records that recovery does not read whole.
Layout any_layout(Random& random) {
  const std::uint32_t block_tokens = 4 << random.below(3);
  switch (random.below(8)) {
    case 0:
      return Layout::full(3, 4, 64, KvDtype::f32, 8);
    case 1:
    case 2:
      return Layout::full(4, 2, 32, KvDtype::f32, block_tokens);
    default:
      return Layout::full(3, 2, 16, KvDtype::f32, block_tokens);
  }
}

Scope any_scope(Random& random) {
  switch (random.below(6)) {
    case 0:
      return Scope{.tenant_salt = "another tenant"};
    case 1:
      return Scope{.adapter = test::digest_of("adapter")};
    default:
      return Scope{};
  }
}

std::vector<std::byte> bytes_of(const ChainPoint& point, std::uint64_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t at = 0; at < count; ++at) bytes[at] = test::kv_byte(point, at);
  return bytes;
}

}  // namespace

Universe::Universe(Random random)
    : layout_(any_layout(random)),
      models_{test::toy_identity("weights"), test::toy_identity("other weights")} {
  for (std::uint32_t i = 0; i < kChains; ++i) chains_.push_back(grow(random));
  for (Chain& chain : chains_) number_blocks(chain);
}

std::uint64_t Universe::record_bytes() const {
  return kAlignment + (layout_.block_bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

// A branch of a chain that is there, or a new one.
Chain Universe::grow(Random& random) {
  Chain chain;
  std::size_t shared = 0;
  if (!chains_.empty() && !random.one_in(3)) {
    chain = chains_[random.below(static_cast<std::uint32_t>(chains_.size()))];
    shared = random.below(static_cast<std::uint32_t>(chain.tokens.size() / block_tokens() + 1));
    chain.tokens.resize(shared * block_tokens());
  } else {
    chain.model = random.one_in(5) ? 1 : 0;
    chain.scope = any_scope(random);
  }
  const std::size_t blocks = random.between(1, kBlocksMax);
  for (std::size_t block = shared; block < blocks; ++block) {
    const TokenId pattern = random.below(kPatterns) * 65536;
    for (TokenId i = 0; i < block_tokens(); ++i) chain.tokens.push_back(pattern + i);
  }
  // Not whole blocks: the rest is never cached.
  for (TokenId i = random.below(block_tokens()); i > 0; --i) chain.tokens.push_back(i);
  if (chain.tokens.empty()) chain.tokens.push_back(1);
  return chain;
}

void Universe::number_blocks(Chain& chain) {
  chain.root = chain_root(models_[chain.model], layout_, chain.scope).value();
  chain.blocks.clear();
  ChainPoint parent = chain.root;
  for (std::uint32_t depth = 0; depth < chain.tokens.size() / block_tokens(); ++depth) {
    const auto tokens = std::span(chain.tokens).subspan(depth * block_tokens(), block_tokens());
    const ChainPoint point = chain_next(parent, tokens);
    const auto [known, fresh] = by_lineage_.emplace(point.lineage, block_count());
    if (fresh) {
      names_.emplace(name_of(point.key, parent.key, depth), block_count());
      blocks_.push_back({point, parent, depth, bytes_of(point, layout_.block_bytes())});
    }
    chain.blocks.push_back(known->second);
    parent = point;
  }
}

std::optional<BlockNumber> Universe::find(const BlockKey& key, const BlockKey& parent,
                                          std::uint32_t depth) const {
  const auto found = names_.find(name_of(key, parent, depth));
  if (found == names_.end()) return std::nullopt;
  return found->second;
}

Universe::Name Universe::name_of(const BlockKey& key, const BlockKey& parent, std::uint32_t depth) {
  return {key.low, key.high, parent.low, parent.high, depth};
}

}  // namespace terrace::sim
