// A toy engine on both kinds of HBM: the cache's arena, used in place, and a pool of its own, which
// the cache copies in and out of. Both find what the other computed.
//
// Its "KV" is a function of every token before it, as real KV is, and it reads all of it back
// through the block table: one wrong, early or late byte, and it exits with 1.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "terrace/terrace.hpp"

using namespace std::chrono_literals;
using Tokens = std::span<const terrace::TokenId>;

namespace {

constexpr std::uint32_t kParts = 6;  // part 2 * layer is a layer's K, part 2 * layer + 1 its V
constexpr std::uint32_t kBlockTokens = 16, kPoolSlots = 24;
const terrace::Layout kLayout = terrace::Layout::full(kParts / 2, /*kv_heads=*/2, /*head_dim=*/32,
                                                      terrace::KvDtype::f32, kBlockTokens);
const std::uint64_t kPartBytes = kLayout.component_slice(0, 0).bytes;

std::vector<std::byte> kv_of(Tokens prompt, std::size_t block, std::uint32_t part) {
  std::uint64_t state = part + 1;
  for (const auto token : prompt.first((block + 1) * kBlockTokens)) state = (state ^ token) * 31;
  std::vector<std::byte> bytes(kPartBytes);
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

class ToyEngine {
 public:
  ToyEngine(const terrace::Cache& cache, const terrace::Model& model)
      : cache_(cache), model_(model), stream_(cache.device().create_stream().value()) {
    terrace::PoolDescription description{kPoolSlots, {}};
    for (std::uint32_t part = 0; part < kParts; ++part) {
      description.regions.push_back({pool_at(part, 0), kPartBytes, kPartBytes, part / 2, part % 2});
    }
    pool_id_ = cache_.register_pool(std::move(description)).value();
  }
  ~ToyEngine() {
    cache_.unregister_pool(pool_id_);
    cache_.device().destroy_stream(stream_);
  }

  // Blocks are computed and read where the cache keeps them.
  bool run_in_place(Tokens prompt) {
    terrace::FetchOp fetch;
    model_.fetch(model_.match(prompt).value(), fetch).value();
    while (!fetch.done()) cache_.poll(100us);
    terrace::ReadLease prefix = fetch.take_lease();
    const std::uint32_t cached = prefix.prefix().blocks;
    const auto blocks = static_cast<std::uint32_t>(prompt.size() / kBlockTokens);
    terrace::WriteLease fresh = model_.reserve(prefix, blocks - cached).value();

    std::vector<terrace::Slot> table(prefix.slots().begin(), prefix.slots().end());
    table.insert(table.end(), fresh.slots().begin(), fresh.slots().end());
    locate_ = [&](std::size_t block, std::uint32_t part) {
      return cache_.data(table[block]) + kLayout.component_slice(part / 2, part % 2).offset;
    };
    const bool right = forward(prompt, cached, fetch);
    model_.commit(fresh, prompt.subspan(cached * kBlockTokens), now(), prefix).value();
    return report("in place", cached, right);
  }

  // The cache copies into the engine's slots, and out of them.
  bool run_in_pool(Tokens prompt) {
    std::vector<std::uint32_t> table(prompt.size() / kBlockTokens);
    for (std::uint32_t i = 0; i < table.size(); ++i) table[i] = (i * 7 + 3) % kPoolSlots;
    terrace::Match match = model_.match(prompt).value();
    const std::uint32_t cached = match.block_count();
    terrace::Prefix prefix = match.prefix();
    terrace::FetchOp fetch;
    model_.fetch(std::move(match), pool_id_, std::span(table).first(cached), now(), fetch).value();
    while (!fetch.done()) cache_.poll(100us);
    if (fetch.blocks_usable() < cached) return report("a block was lost", cached, false);

    locate_ = [&](std::size_t block, std::uint32_t part) { return pool_at(part, table[block]); };
    const bool right = forward(prompt, cached, fetch);
    terrace::StoreOp store;
    model_
        .store(pool_id_, std::span(table).subspan(cached), prompt.subspan(cached * kBlockTokens),
               now(), prefix, store)
        .value();
    while (!store.done()) cache_.poll(100us);
    return report("in own pool", cached, right && store.status());
  }

 private:
  std::byte* pool_at(std::uint32_t part, std::uint32_t slot) {
    return pool_.data() + (part * kPoolSlots + slot) * kPartBytes;
  }
  terrace::StreamPoint now() { return cache_.device().record(stream_).value(); }

  // Computes what was not cached, then "attends", layer by layer, to every byte.
  bool forward(Tokens prompt, std::size_t cached, terrace::FetchOp& fetch) {
    const std::size_t blocks = prompt.size() / kBlockTokens;
    bool right = true;
    for (std::uint32_t part = 0; part < kParts; ++part) {
      for (std::size_t block = cached; block < blocks; ++block) {
        std::memcpy(locate_(block, part), kv_of(prompt, block, part).data(), kPartBytes);
      }
      fetch.gate(part / 2, stream_).value();  // the stream waits for this layer's copies,
      cache_.device().synchronize(now());     // and this "kernel", on the host, for the stream
      for (std::size_t block = 0; block < blocks; ++block) {
        const auto expected = kv_of(prompt, block, part);
        right &= std::memcmp(locate_(block, part), expected.data(), kPartBytes) == 0;
      }
    }
    return right;
  }

  static bool report(const char* what, std::uint32_t cached, bool right) {
    std::printf("%-12s %u blocks cached, KV is %s\n", what, cached, right ? "right" : "WRONG");
    return right;
  }

  const terrace::Cache& cache_;
  const terrace::Model& model_;
  terrace::StreamId stream_;
  std::vector<std::byte> pool_ = std::vector<std::byte>(kParts * kPoolSlots * kPartBytes);
  terrace::PoolId pool_id_;
  std::function<std::byte*(std::size_t block, std::uint32_t part)> locate_;
};

}  // namespace

int main() {
  terrace::Options options;
  options.hbm_bytes = options.dram_bytes = terrace::MiB;
  const terrace::Cache cache = terrace::Cache::open(std::move(options), kLayout).value();
  const terrace::Digest none = terrace::sha256({});  // a toy: no weights, tokenizer or settings
  const terrace::Model model = cache.bind({none, none, none, "toy", "none", "toy"}).value();
  ToyEngine engine(cache, model);
  std::vector<terrace::TokenId> first(192), second(192);
  std::iota(first.begin(), first.end(), 0u);
  std::iota(second.begin(), second.end(), 1u);
  bool right = engine.run_in_place(first) && engine.run_in_pool(first);
  return right && engine.run_in_pool(second) && engine.run_in_place(second) ? 0 : 1;
}
