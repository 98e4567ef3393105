// A toy engine over the public API whose KV bytes are a function of the chain they belong to, so
// that any block that comes back can be checked without having been stored.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "terrace/cache.hpp"

namespace terrace::test {

using namespace std::chrono_literals;
using Tokens = std::vector<TokenId>;

inline Digest digest_of(const char* text) {
  return sha256(std::as_bytes(std::span(text, std::strlen(text))));
}

inline ModelIdentity toy_identity(const char* weights = "weights") {
  ModelIdentity identity;
  identity.weights = digest_of(weights);
  identity.tokenizer = digest_of("tokenizer");
  identity.attention = digest_of("attention");
  identity.quantization = "none";
  identity.kv_scaling = "none";
  return identity;
}

// 3 layers of 2 heads of 8: 384 bytes a token.
inline Layout toy_layout(std::uint32_t block_tokens = 8) {
  return Layout::full(3, 2, 8, KvDtype::f32, block_tokens);
}

inline Tokens tokens_from(std::uint32_t first, std::size_t count) {
  Tokens tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

// Byte `at` of the KV of the block that ends at `point`.
inline std::byte kv_byte(const ChainPoint& point, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, point.lineage.data() + (at / 8 % 4) * 8, sizeof word);
  word = (word ^ (at / 8)) * 0x9e3779b97f4a7c15ull;
  return static_cast<std::byte>((word >> (8 * (at % 8))) ^ (word >> 37));
}

// A folder that is gone when the test is.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("terrace-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::string operator/(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline Options toy_options(std::uint32_t hbm_blocks, std::uint32_t dram_blocks,
                           const std::string& nvme_path = {}, std::uint64_t nvme_bytes = 4 * MiB,
                           const Layout& layout = toy_layout()) {
  Options options;
  const std::uint64_t record_bytes = (layout.block_bytes() + 4095) / 4096 * 4096 + 4096;
  options.hbm_bytes = hbm_blocks * ((layout.block_bytes() + 255) / 256 * 256);
  options.dram_bytes = dram_blocks * record_bytes;
  if (!nvme_path.empty()) options.nvme_paths = {nvme_path};
  options.nvme_bytes = nvme_path.empty() ? 0 : nvme_bytes;
  options.layer_copy_bytes = 1;  // a gate for every layer
  options.io_queue_depth = 16;
  return options;
}

struct Served {
  std::uint32_t cached_tokens = 0;
  std::array<std::uint32_t, kPlaceCount> cached_by_place{};
};

class ToyEngine {
 public:
  explicit ToyEngine(const Options& options, const Layout& layout = toy_layout(),
                     const ModelIdentity& identity = toy_identity())
      : cache_(open(options, layout)), model_(cache_.bind(identity).value()) {
    compute_ = cache_.device().create_stream().value();
  }

  static Cache open(const Options& options, const Layout& layout) {
    auto cache = Cache::open(options, layout);
    if (!cache)
      ADD_FAILURE() << cache.error().message << " (errno " << cache.error().os_error << ")";
    return std::move(cache).value();
  }

  Cache& cache() { return cache_; }
  Model& model() { return model_; }
  StreamId stream() const { return compute_; }
  std::uint32_t block_tokens() const { return cache_.layout().block_tokens; }

  void wait(const FetchOp& op) {
    for (int i = 0; i < 100000 && !op.done(); ++i) cache_.poll(100us);
    ASSERT_TRUE(op.done());
  }

  // Everything of `prompt` is in HBM afterwards, checked, and its whole blocks are committed.
  ReadLease prefill(const Tokens& prompt, const Scope& scope = {}, Served* served = nullptr) {
    auto match = model_.match(prompt, scope);
    EXPECT_TRUE(match);
    FetchOp fetch;
    EXPECT_TRUE(model_.fetch(std::move(*match), fetch));
    ReadLease prefix = take_checked(fetch, prompt);
    if (served != nullptr) count(fetch, *served);
    compute_rest(prompt, prefix);
    return prefix;
  }

  // What a fetch of `prompt` has brought, every byte of it checked.
  ReadLease take_checked(FetchOp& fetch, const Tokens& prompt) {
    wait(fetch);
    ReadLease prefix = fetch.take_lease();
    for (std::uint32_t layer = 0; layer < cache_.layout().layer_count(); ++layer) {
      EXPECT_TRUE(fetch.gate(layer, compute_));
      cache_.device().synchronize(fetch.layer_point(layer));
      check_layer(prefix, prompt, layer);
    }
    return prefix;
  }

  Served serve(const Tokens& prompt, const Scope& scope = {}) {
    Served served;
    ReadLease lease = prefill(prompt, scope, &served);
    lease.release();
    EXPECT_TRUE(cache_.flush(10s));
    check_conservation();
    return served;
  }

  void drop(std::initializer_list<PlaceId> places) {
    const std::vector<PlaceId> list(places);
    auto dropped = cache_.drop(list, 10s);
    ASSERT_TRUE(dropped) << dropped.error().message;
  }

  // As drop(), where leases may be held and a full flush may have to wait for them.
  void drop_soon(std::initializer_list<PlaceId> places) {
    const std::vector<PlaceId> list(places);
    (void)cache_.drop(list, 20ms);
  }

  void check_conservation() {
    const Stats stats = cache_.stats();
    std::uint64_t hit_tokens = stats.miss_tokens;
    std::uint64_t hit_blocks = stats.miss_blocks;
    for (const PlaceStats& place : stats.places) {
      EXPECT_EQ(place.free_blocks + place.used_blocks + place.quarantined_blocks,
                place.capacity_blocks);
      EXPECT_LE(place.pinned_blocks, place.used_blocks + place.quarantined_blocks);
      hit_tokens += place.hit_tokens;
      hit_blocks += place.hit_blocks;
    }
    EXPECT_EQ(hit_tokens, stats.query_tokens);
    EXPECT_EQ(hit_blocks, stats.query_blocks);
  }

  void check_nothing_pinned() { EXPECT_EQ(pinned_blocks(), 0u); }

  // A busy drive may take its time, but not for ever.
  void wait_until_unpinned() {
    for (int i = 0; i < 100000 && pinned_blocks() > 0; ++i) cache_.poll(100us);
    check_nothing_pinned();
  }

  std::uint32_t pinned_blocks() {
    const Stats stats = cache_.stats();
    std::uint32_t count = 0;
    for (const PlaceStats& place : stats.places) count += place.pinned_blocks;
    return count;
  }

  ChainPoint point_of(const Tokens& prompt, std::size_t block, const ChainPoint& root) const {
    ChainPoint point = root;
    for (std::size_t i = 0; i <= block; ++i) point = chain_next(point, tokens_of(prompt, i));
    return point;
  }

  std::span<const TokenId> tokens_of(const Tokens& prompt, std::size_t block) const {
    return std::span(prompt).subspan(block * block_tokens(), block_tokens());
  }

  void fill(Slot slot, const ChainPoint& point) {
    std::byte* data = cache_.data(slot);
    for (std::size_t at = 0; at < cache_.layout().block_bytes(); ++at)
      data[at] = kv_byte(point, at);
  }

 private:
  void check_layer(const ReadLease& lease, const Tokens& prompt, std::uint32_t layer) {
    ChainPoint point = lease.prefix().root;
    const Slice slice = cache_.layout().layer_slice(layer);
    for (std::size_t block = 0; block < lease.slots().size(); ++block) {
      point = chain_next(point, tokens_of(prompt, block));
      const std::byte* data = cache_.data(lease.slots()[block]);
      std::size_t wrong = 0;
      for (std::size_t at = slice.offset; at < slice.offset + slice.bytes; ++at)
        wrong += data[at] != kv_byte(point, at);
      ASSERT_EQ(wrong, 0u) << "wrong bytes in layer " << layer << " of block " << block;
    }
  }

  void compute_rest(const Tokens& prompt, ReadLease& prefix) {
    const std::size_t have = prefix.slots().size();
    const std::size_t whole = prompt.size() / block_tokens();
    auto fresh = model_.reserve(prefix, static_cast<std::uint32_t>(whole - have));
    ASSERT_TRUE(fresh) << fresh.error().message;
    ChainPoint point = prefix.prefix().tip;
    for (std::size_t i = have; i < whole; ++i) {
      point = chain_next(point, tokens_of(prompt, i));
      fill(fresh->slots()[i - have], point);
    }
    const auto tokens =
        std::span(prompt).subspan(have * block_tokens(), (whole - have) * block_tokens());
    auto result = model_.commit(*fresh, tokens, StreamPoint{}, prefix);
    ASSERT_TRUE(result) << result.error().message;
    ASSERT_EQ(result->published + result->duplicate + result->unpublished, whole - have);
  }

  void count(const FetchOp& fetch, Served& served) const {
    for (const BlockResult& result : fetch.results()) {
      if (!result.usable) continue;
      served.cached_tokens += block_tokens();
      served.cached_by_place[result.found_at] += block_tokens();
    }
  }

  Cache cache_;
  Model model_;
  StreamId compute_ = 0;
};

}  // namespace terrace::test
