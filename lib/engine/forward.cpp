#include "engine/forward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "engine/kernels.hpp"
#include "engine/rope.hpp"

namespace terrace::engine {
namespace {

constexpr std::uint32_t kRowsAtOnce =
    16;  // rows a thread normalises or rotates before it takes the next ones

// Forking pays from about this many multiplications a layer on: 10 us of one core.
constexpr std::uint64_t kWorthForking = 1'000'000;

// Where things lie in a block: [layer][K, V][kv_head][token][head_dim], in floats.
struct BlockShape {
  std::size_t head;   // one head's K, or V, of one layer
  std::size_t half;   // all heads' K
  std::size_t layer;  // K and V

  BlockShape(const ModelConfig& config, std::uint32_t block_tokens)
      : head(std::size_t{block_tokens} * config.head_dim),
        half(head * config.kv_heads),
        layer(2 * half) {}
};

void check(const ModelConfig& config, std::span<const std::uint32_t> tokens, std::uint32_t start,
           const PagedKv& kv) {
  if (tokens.empty()) throw std::invalid_argument("a forward pass needs at least one token");
  const std::uint64_t end = std::uint64_t{start} + tokens.size();
  if (end > config.max_positions) {
    throw std::invalid_argument(fmt::format(
        "position {} is beyond the model's context of {} tokens", end - 1, config.max_positions));
  }
  if (kv.block_tokens == 0 || end > std::uint64_t{kv.blocks.size()} * kv.block_tokens) {
    throw std::invalid_argument(fmt::format("{} blocks of {} tokens cannot hold {} tokens",
                                            kv.blocks.size(), kv.block_tokens, end));
  }
  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [&](std::uint32_t id) { return id >= config.vocab_size; });
  if (bad != tokens.end()) {
    throw std::invalid_argument(
        fmt::format("token id {} is beyond the vocabulary of {}", *bad, config.vocab_size));
  }
}

}  // namespace

std::size_t block_bytes(const ModelConfig& config, std::uint32_t block_tokens) noexcept {
  return BlockShape(config, block_tokens).layer * config.layers * sizeof(float);
}

// The state of a pass. Activations are [row][...], one row a token of the chunk.
class Forward::Pass {
 public:
  Pass(const Weights& weights, const ForwardOptions& options);

  std::span<const float> run(std::span<const std::uint32_t> tokens, std::uint32_t start,
                             const PagedKv& kv, LayerGate* gate);

 private:
  void run_chunk(std::span<const std::uint32_t> tokens, std::uint32_t position, LayerGate* gate);
  void embed(std::span<const std::uint32_t> tokens);
  void attention(std::uint32_t layer, LayerGate* gate);
  void mlp(std::uint32_t layer);
  void compute_logits();

  void normalise(std::span<const float> weight);
  template <class Use>
  void multiply(const Linear& linear, const float* x, Use&& use);
  void project(const Linear& linear, const float* x, float* out);
  void project_and_add(const Linear& linear, const float* x, float* out);
  void rotate_and_store(std::uint32_t layer);
  void rotate_row(std::uint32_t layer, std::uint32_t row);
  void rotate_head(float* head, std::span<const float> norm, std::uint32_t row, float* out) const;
  void attend(std::uint32_t layer);
  void gate_and_up(const Linear& linear);

  // Calls body(row) for every row of the chunk.
  template <class Body>
  void for_rows(Body&& body) {
    for_each((rows_ + kRowsAtOnce - 1) / kRowsAtOnce, [&](std::uint32_t group, unsigned) {
      const std::uint32_t end = std::min(rows_, (group + 1) * kRowsAtOnce);
      for (std::uint32_t row = group * kRowsAtOnce; row < end; ++row) body(row);
    });
  }
  // On the team, or on the caller's thread alone where the chunk is too little work to share.
  template <class Body>
  void for_each(std::uint32_t count, Body&& body) {
    if (forks_) return team_.for_each(count, body);
    for (std::uint32_t index = 0; index < count; ++index) body(index, 0U);
  }

  const Weights& weights_;
  const ModelConfig& config_;
  const Kernels& kernels_ = best_kernels();
  Rope rope_;
  ThreadTeam team_;
  Multiplier multiplier_;
  std::uint32_t chunk_tokens_;
  std::uint64_t layer_weights_;  // of one layer: multiplications a token

  // The chunk at hand.
  PagedKv kv_;
  std::uint32_t rows_ = 0;
  std::uint32_t position_ = 0;  // of row 0
  bool forks_ = false;

  PageBuffer x_;                               // [row][hidden]: the residual stream
  PageBuffer normed_;                          // [row][hidden]
  PageBuffer qkv_;                             // [row][heads + 2 kv_heads][head_dim]
  PageBuffer attended_;                        // [row][heads][head_dim]
  PageBuffer inner_;                           // [row][intermediate]
  PageBuffer cosines_;                         // [row][head_dim / 2]
  PageBuffer sines_;                           // [row][head_dim / 2]
  PageBuffer logits_;                          // [vocab]
  std::vector<PageBuffer> attention_scratch_;  // one a thread
};

Forward::Pass::Pass(const Weights& weights, const ForwardOptions& options)
    : weights_(weights),
      config_(weights.config),
      rope_(config_),
      team_(options.threads),
      multiplier_(team_.size()),
      chunk_tokens_(std::min(options.chunk_tokens, config_.max_positions)) {
  if (chunk_tokens_ == 0) throw std::invalid_argument("chunk_tokens is 0; it must be positive");
  const auto rows_of = [&](std::size_t floats) {
    return PageBuffer(chunk_tokens_ * floats * sizeof(float));
  };
  x_ = rows_of(config_.hidden_size);
  normed_ = rows_of(config_.hidden_size);
  qkv_ = rows_of(config_.qkv_size());
  attended_ = rows_of(config_.query_size());
  inner_ = rows_of(config_.intermediate_size);
  cosines_ = rows_of(config_.head_dim / 2);
  sines_ = rows_of(config_.head_dim / 2);
  logits_ = PageBuffer(config_.vocab_size * sizeof(float));
  for (unsigned thread = 0; thread < team_.size(); ++thread) {
    attention_scratch_.emplace_back(kernels_.scratch_floats(config_.head_dim) * sizeof(float));
  }
  layer_weights_ = std::uint64_t{config_.hidden_size} *
                   (config_.qkv_size() + config_.query_size() + 3ULL * config_.intermediate_size);
}

std::span<const float> Forward::Pass::run(std::span<const std::uint32_t> tokens,
                                          std::uint32_t start, const PagedKv& kv, LayerGate* gate) {
  check(config_, tokens, start, kv);
  const SingleThreadedLibrary single;
  kv_ = kv;
  for (std::size_t done = 0; done < tokens.size(); done += rows_) {
    const auto chunk =
        tokens.subspan(done, std::min<std::size_t>(chunk_tokens_, tokens.size() - done));
    run_chunk(chunk, start + static_cast<std::uint32_t>(done), done == 0 ? gate : nullptr);
  }
  compute_logits();
  return logits_.floats();
}

// The story: tokens become vectors; each layer lets them look at each other, then thinks about each
// alone.
void Forward::Pass::run_chunk(std::span<const std::uint32_t> tokens, std::uint32_t position,
                              LayerGate* gate) {
  rows_ = static_cast<std::uint32_t>(tokens.size());
  position_ = position;
  forks_ = rows_ * layer_weights_ >= kWorthForking;
  embed(tokens);
  for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
    attention(layer, gate);
    mlp(layer);
  }
}

void Forward::Pass::embed(std::span<const std::uint32_t> tokens) {
  const EmbeddingTable& table = weights_.embedding;
  const std::size_t hidden = config_.hidden_size;
  const std::size_t row_bytes = table.rows.size() / config_.vocab_size;
  const std::size_t half = config_.head_dim / 2;
  for_rows([&](std::uint32_t row) {
    convert_to_f32(table.type, std::span(table.rows).subspan(tokens[row] * row_bytes, row_bytes),
                   x_.floats().subspan(row * hidden, hidden));
    rope_.angles(position_ + row, cosines_.floats().data() + row * half,
                 sines_.floats().data() + row * half);
  });
}

// x += W_o attention(rope(W_q n), rope(W_k n), W_v n), n = norm(x)
void Forward::Pass::attention(std::uint32_t layer, LayerGate* gate) {
  const LayerWeights& weights = weights_.layers[layer];
  normalise(weights.attention_norm);
  project(weights.qkv, normed_.floats().data(), qkv_.floats().data());
  if (gate != nullptr) gate->wait(layer);
  rotate_and_store(layer);
  attend(layer);
  project_and_add(weights.output, attended_.floats().data(), x_.floats().data());
}

// x += W_down (silu(W_gate n) * W_up n), n = norm(x)
void Forward::Pass::mlp(std::uint32_t layer) {
  const LayerWeights& weights = weights_.layers[layer];
  normalise(weights.mlp_norm);
  gate_and_up(weights.gate_up);
  project_and_add(weights.down, inner_.floats().data(), x_.floats().data());
}

void Forward::Pass::compute_logits() {
  const float* last = x_.floats().data() + (rows_ - 1) * std::size_t{config_.hidden_size};
  kernels_.rms_norm(last, weights_.final_norm.data(), config_.rms_norm_eps, normed_.floats().data(),
                    config_.hidden_size);
  rows_ = 1;
  project(weights_.logits, normed_.floats().data(), logits_.floats().data());
}

void Forward::Pass::normalise(std::span<const float> weight) {
  const std::size_t hidden = config_.hidden_size;
  for_rows([&](std::uint32_t row) {
    kernels_.rms_norm(x_.floats().data() + row * hidden, weight.data(), config_.rms_norm_eps,
                      normed_.floats().data() + row * hidden, hidden);
  });
}

// Computes x * linear slice by slice and hands each one to use(slice, values [rows][slice.count])
// on the thread that computed it, while it is in its cache.
template <class Use>
void Forward::Pass::multiply(const Linear& linear, const float* x, Use&& use) {
  multiplier_.prepare(linear, rows_);
  const auto slices = linear.slices();
  for_each(static_cast<std::uint32_t>(slices.size()), [&](std::uint32_t slice, unsigned thread) {
    use(slices[slice], multiplier_.multiply(linear, slice, x, thread));
  });
}

void Forward::Pass::project(const Linear& linear, const float* x, float* out) {
  multiply(linear, x, [&](const Linear::Slice& slice, const float* values) {
    for (std::size_t row = 0; row < rows_; ++row) {
      std::memcpy(out + row * linear.outputs() + slice.first, values + row * slice.count,
                  slice.count * sizeof(float));
    }
  });
}

void Forward::Pass::project_and_add(const Linear& linear, const float* x, float* out) {
  multiply(linear, x, [&](const Linear::Slice& slice, const float* values) {
    for (std::size_t row = 0; row < rows_; ++row) {
      float* to = out + row * linear.outputs() + slice.first;
      const float* from = values + row * slice.count;
      for (std::uint32_t i = 0; i < slice.count; ++i) to[i] += from[i];
    }
  });
}

void Forward::Pass::gate_and_up(const Linear& linear) {
  float* out = inner_.floats().data();
  multiply(linear, normed_.floats().data(), [&](const Linear::Slice& slice, const float* values) {
    const std::uint32_t columns = slice.count / 2;
    for (std::size_t row = 0; row < rows_; ++row) {
      const float* gate = values + row * slice.count;
      kernels_.silu_multiply(gate, gate + columns,
                             out + row * config_.intermediate_size + slice.first / 2, columns);
    }
  });
}

void Forward::Pass::rotate_and_store(std::uint32_t layer) {
  for_rows([&](std::uint32_t row) { rotate_row(layer, row); });
}

// Queries are rotated in place; keys are rotated into, and values copied into, the token's block.
void Forward::Pass::rotate_row(std::uint32_t layer, std::uint32_t row) {
  const LayerWeights& weights = weights_.layers[layer];
  const BlockShape shape(config_, kv_.block_tokens);
  const std::size_t dim = config_.head_dim;
  float* head = qkv_.floats().data() + row * std::size_t{config_.qkv_size()};
  for (std::uint32_t i = 0; i < config_.heads; ++i, head += dim) {
    rotate_head(head, weights.q_norm, row, head);
  }
  const std::uint32_t position = position_ + row;
  float* block = reinterpret_cast<float*>(kv_.blocks[position / kv_.block_tokens]);
  float* k = block + layer * shape.layer + position % kv_.block_tokens * dim;
  for (std::uint32_t i = 0; i < config_.kv_heads; ++i, head += dim) {
    rotate_head(head, weights.k_norm, row, k + i * shape.head);
  }
  float* v = k + shape.half;
  for (std::uint32_t i = 0; i < config_.kv_heads; ++i, head += dim) {
    std::memcpy(v + i * shape.head, head, dim * sizeof(float));
  }
}

void Forward::Pass::rotate_head(float* head, std::span<const float> norm, std::uint32_t row,
                                float* out) const {
  const std::size_t half = config_.head_dim / 2;
  if (!norm.empty()) {
    kernels_.rms_norm(head, norm.data(), config_.rms_norm_eps, head, config_.head_dim);
  }
  kernels_.rotate(head, cosines_.floats().data() + row * half, sines_.floats().data() + row * half,
                  out, half);
}

// One task a KV head and panel of query rows, longest first: late panels see more tokens.
void Forward::Pass::attend(std::uint32_t layer) {
  const BlockShape shape(config_, kv_.block_tokens);
  const std::uint32_t group = config_.heads / config_.kv_heads;
  const std::uint32_t rows = rows_ * group;
  const std::uint32_t panels = (rows + kernels_.panel_rows - 1) / kernels_.panel_rows;
  for_each(panels * config_.kv_heads, [&](std::uint32_t task, unsigned thread) {
    const std::uint32_t kv_head = task % config_.kv_heads;
    const std::uint32_t first = (panels - 1 - task / config_.kv_heads) * kernels_.panel_rows;
    const std::size_t head = std::size_t{kv_head} * group * config_.head_dim;
    AttentionPanel panel{};
    panel.kv = {kv_.blocks.data(), kv_.block_tokens,
                (layer * shape.layer + kv_head * shape.head) * sizeof(float),
                shape.half * sizeof(float)};
    panel.head_dim = config_.head_dim;
    panel.group = group;
    panel.first_row = first;
    panel.rows = std::min(kernels_.panel_rows, rows - first);
    panel.first_position = position_;
    panel.scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim));
    panel.q = qkv_.floats().data() + head;
    panel.q_stride = config_.qkv_size();
    panel.out = attended_.floats().data() + head;
    panel.out_stride = config_.query_size();
    panel.scratch = attention_scratch_[thread].floats().data();
    kernels_.attend(panel);
  });
}

Forward::Forward(const Weights& weights, ForwardOptions options)
    : pass_(std::make_unique<Pass>(weights, options)) {}

Forward::~Forward() = default;

std::span<const float> Forward::run(std::span<const std::uint32_t> tokens, std::uint32_t start,
                                    const PagedKv& kv, LayerGate* gate) {
  return pass_->run(tokens, start, kv, gate);
}

}  // namespace terrace::engine
