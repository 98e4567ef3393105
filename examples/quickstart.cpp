// Quickstart: what an engine does for each request, and what it gets back from each tier.
//
// Opens a cache in a temporary directory, computes the KV of a prompt once, and asks for it again:
// from HBM, from NVMe, and after a restart. The "KV" here is a fill byte;
// examples/custom_engine.cpp checks real bytes.
#include <stdlib.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "terrace/terrace.hpp"

using namespace std::chrono_literals;

namespace {

const terrace::Layout kLayout =
    terrace::Layout::full(/*layers=*/4, /*kv_heads=*/2, /*head_dim=*/64, terrace::KvDtype::bf16);

// docs: begin open
terrace::Cache open_cache(const std::string& directory) {
  terrace::Options options;
  options.hbm_bytes = 2 * terrace::MiB;  // each cap is hard, at every instant
  options.dram_bytes = 8 * terrace::MiB;
  options.nvme_paths = {directory};
  options.nvme_bytes = 128 * terrace::MiB;
  return terrace::Cache::open(options, kLayout).value();  // on error: ends the process, saying why
}

// Who computes the KV. Leave a field out, and bind() refuses: a cache never guesses.
terrace::ModelIdentity identity_of(std::span<const std::byte> weights,
                                   std::span<const std::byte> tokenizer) {
  terrace::ModelIdentity identity;
  identity.weights = terrace::sha256(weights);  // of a checkpoint: weights_digest()
  identity.tokenizer = terrace::sha256(tokenizer);
  identity.attention = terrace::sha256({});  // nothing about this model's attention is configurable
  identity.quantization = "none";
  identity.kv_scaling = "none";
  return identity;
}
// docs: end open

// docs: begin request
// Computes the KV of `prompt`, but for what the cache has. Returns: the number of cached tokens.
std::uint32_t prefill(const terrace::Cache& cache, const terrace::Model& model,
                      std::span<const terrace::TokenId> prompt) {
  terrace::Match match = model.match(prompt).value();  // no I/O; the matched blocks are pinned
  terrace::FetchOp fetch;
  model.fetch(std::move(match), fetch).value();  // never blocks
  while (!fetch.done()) cache.poll(100us);
  terrace::ReadLease prefix = fetch.take_lease();

  const std::uint32_t block_tokens = cache.layout().block_tokens;
  const std::uint32_t cached_tokens = prefix.prefix().blocks * block_tokens;
  const std::size_t blocks = (prompt.size() - cached_tokens) / block_tokens;
  terrace::WriteLease fresh = model.reserve(prefix, static_cast<std::uint32_t>(blocks)).value();

  // A real engine: one forward pass over the rest of the prompt, into these slots.
  for (const terrace::Slot slot : fresh.slots()) {
    std::memset(cache.data(slot), 7, cache.layout().block_bytes());
  }
  const auto computed = prompt.subspan(cached_tokens, blocks * block_tokens);
  const terrace::StreamPoint written{};  // on a GPU: device.record(stream), after the last kernel
  if (!computed.empty()) model.commit(fresh, computed, written, prefix).value();
  return cached_tokens;  // `prefix` ends here, and with it the pin on its slots
}
// docs: end request

void show(const char* state, std::uint32_t cached_tokens, std::size_t prompt_tokens) {
  std::printf("%-28s %3u of %zu tokens cached\n", state, cached_tokens, prompt_tokens);
}

}  // namespace

int main() {
  std::string directory = (std::filesystem::temp_directory_path() / "terrace-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return std::perror(directory.c_str()), 1;

  std::vector<terrace::TokenId> prompt(200);
  std::iota(prompt.begin(), prompt.end(), 1000u);
  const std::array<std::byte, 4> weights{}, tokenizer{};
  const terrace::ModelIdentity identity = identity_of(weights, tokenizer);
  std::uint32_t last = 0;
  {
    terrace::Cache cache = open_cache(directory);
    const terrace::Model model = cache.bind(identity).value();
    show("cold", prefill(cache, model, prompt), prompt.size());
    show("again, from HBM", prefill(cache, model, prompt), prompt.size());
    const std::array places{terrace::kHbm0, terrace::kDram0};
    cache.drop(places, 10s).value();
    show("HBM and DRAM dropped: NVMe", prefill(cache, model, prompt), prompt.size());
    cache.close().value();
  }
  {
    terrace::Cache cache = open_cache(directory);
    const terrace::Model model = cache.bind(identity).value();
    show("after a restart", last = prefill(cache, model, prompt), prompt.size());
    cache.close().value();
  }
  std::filesystem::remove_all(directory);
  return last == 192 ? 0 : 1;
}
