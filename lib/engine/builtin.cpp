#include "engine/builtin.hpp"

#include <algorithm>
#include <cstring>

#include "engine/weights.hpp"

namespace terrace::engine {
namespace {

// Raise it with any change below: the weights digest changes then, and so does kBuiltinDigests in
// the tests.
constexpr std::uint64_t kSeed = 0x7E44ACE000000001;

// The finaliser of splitmix64: every input bit changes every output bit with probability one half.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

std::uint64_t seed_of(std::string_view name) {
  std::uint64_t seed = kSeed;
  for (const char c : name) seed = mix(seed ^ static_cast<unsigned char>(c));
  return seed;
}

// Uniform over the 2^24 odd multiples of 2^-24 in (-1, 1): each of them is an exact float32.
float uniform(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = mix(seed + index * 0x9E3779B97F4A7C15) >> 40;
  return static_cast<float>(2 * static_cast<std::int64_t>(bits) + 1 - (1 << 24)) * 0x1p-24F;
}

// Half the width of the distribution of a matrix's weights. A uniform distribution of half width w
// has the variance w^2 / 3, so that a product keeps the variance of its input at w = sqrt(3 /
// inputs), here 2 / sqrt(inputs). Louder queries and keys make attention choose, louder attention
// outputs make the choice count against the token's own embedding: without both, a random model
// soon repeats itself.
float spread_of(const TensorInfo& tensor) {
  const auto is = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
  float spread = 2;
  for (std::uint64_t width = tensor.shape.back(); width > 1; width /= 4) spread /= 2;
  if (is("embed_tokens")) return 0.5F;
  if (is("q_proj") || is("k_proj")) return 2 * spread;
  if (is("o_proj")) return 2 * spread;
  return spread;
}

bool is_printable(std::uint64_t token) {
  return token >= ' ' && token <= '~';
}

}  // namespace

ModelConfig builtin_config(BuiltinSize size) {
  ModelConfig config;
  const bool tiny = size == BuiltinSize::tiny;
  config.hidden_size = tiny ? 64 : 1024;
  config.intermediate_size = tiny ? 256 : 4096;
  config.layers = tiny ? 3 : 6;
  config.heads = tiny ? 8 : 16;
  config.kv_heads = tiny ? 2 : 4;
  config.head_dim = tiny ? 8 : 64;
  config.vocab_size = 272;  // 258 ids, padded to a multiple of 16
  config.max_positions = 16384;
  config.bos_token = 256;
  config.eos_tokens = {257};
  return config;
}

BuiltinSource::BuiltinSource(BuiltinSize size)
    : name_(size == BuiltinSize::tiny ? "builtin:tiny" : "builtin:small") {
  for (TensorSpec& spec : required_tensors(builtin_config(size))) {
    tensors_.push_back({std::move(spec.name), "F32", std::move(spec.shape), 0});
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
}

std::span<const std::byte> BuiltinSource::read(const TensorInfo& tensor, std::uint64_t first,
                                               std::uint64_t count,
                                               std::vector<std::byte>& scratch) const {
  const std::uint64_t seed = seed_of(tensor.name);
  const float spread = spread_of(tensor);
  const bool is_norm = tensor.shape.size() == 1;
  const bool is_head = tensor.name == "lm_head.weight";
  scratch.resize(count * sizeof(float));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t index = first + i;
    float value = is_norm ? 1.0F : spread * uniform(seed, index);
    // The logits of all other tokens are 0, far below the largest of 95 random ones: answers are
    // printable text.
    if (is_head && !is_printable(index / tensor.shape.back())) value = 0;
    std::memcpy(scratch.data() + i * sizeof value, &value, sizeof value);
  }
  return scratch;
}

}  // namespace terrace::engine
