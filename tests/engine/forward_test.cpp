// The whole forward pass against a twin in plain loops and double, for every feature of the
// architectures; and what it promises beside numbers: order of the gate, independence of chunks,
// errors.
#include "engine/forward.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>

#include "engine/checkpoints.hpp"
#include "engine/paged_memory.hpp"
#include "engine/rope.hpp"

namespace terrace::engine {
namespace {

using test::PagedMemory;
using test::RandomTensors;
using Vector = std::vector<double>;

// Straight from the definition; keeps K and V of every token.
class Twin {
 public:
  Twin(const ModelConfig& config, const RandomTensors& tensors)
      : config_(config), tensors_(tensors), k_(config.layers), v_(config.layers) {}

  Vector step(std::uint32_t token) {
    Vector x(config_.hidden_size);
    const auto& table = tensors_.values("model.embed_tokens.weight");
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = table[token * x.size() + i];
    for (std::uint32_t layer = 0; layer < config_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      add(x, attention(layer, prefix + "self_attn.", norm(x, prefix + "input_layernorm.weight")));
      add(x, mlp(prefix + "mlp.", norm(x, prefix + "post_attention_layernorm.weight")));
    }
    ++position_;
    const char* head = config_.tied_embeddings ? "model.embed_tokens" : "lm_head";
    return product(head, norm(x, "model.norm.weight"), false);
  }

  const Vector& k(std::uint32_t layer, std::uint32_t token) const { return k_[layer][token]; }
  const Vector& v(std::uint32_t layer, std::uint32_t token) const { return v_[layer][token]; }

 private:
  static void add(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  Vector norm(const Vector& x, const std::string& name) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + double{config_.rms_norm_eps});
    Vector y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * tensors_.values(name)[i];
    return y;
  }
  Vector product(const std::string& name, const Vector& x, bool bias) const {
    const auto& weight = tensors_.values(name + ".weight");
    Vector y(weight.size() / x.size());
    for (std::size_t row = 0; row < y.size(); ++row) {
      y[row] = bias ? tensors_.values(name + ".bias")[row] : 0;
      for (std::size_t i = 0; i < x.size(); ++i) y[row] += weight[row * x.size() + i] * x[i];
    }
    return y;
  }
  // Normalises where the model does, and rotates, every head of `all`.
  void turn(Vector& all, const std::string& norm_name) const {
    const std::size_t half = config_.head_dim / 2;
    const Rope rope(config_);
    for (std::size_t at = 0; at < all.size(); at += config_.head_dim) {
      Vector head(all.begin() + at, all.begin() + at + config_.head_dim);
      if (config_.qk_norm) head = norm(head, norm_name);
      for (std::size_t i = 0; i < half; ++i) {
        const double angle = position_ * rope.frequencies()[i];
        all[at + i] = head[i] * std::cos(angle) - head[i + half] * std::sin(angle);
        all[at + i + half] = head[i + half] * std::cos(angle) + head[i] * std::sin(angle);
      }
    }
  }
  Vector attention(std::uint32_t layer, const std::string& prefix, const Vector& x) {
    Vector q = product(prefix + "q_proj", x, config_.qkv_bias);
    Vector k = product(prefix + "k_proj", x, config_.qkv_bias);
    turn(q, prefix + "q_norm.weight");
    turn(k, prefix + "k_norm.weight");
    k_[layer].push_back(k);
    v_[layer].push_back(product(prefix + "v_proj", x, config_.qkv_bias));
    Vector out(q.size());
    for (std::uint32_t head = 0; head < config_.heads; ++head) attend(layer, head, q, out);
    return product(prefix + "o_proj", out, config_.output_bias);
  }
  void attend(std::uint32_t layer, std::uint32_t head, const Vector& q, Vector& out) const {
    const std::size_t dim = config_.head_dim;
    const std::size_t kv_at = head / (config_.heads / config_.kv_heads) * dim;
    Vector weights;
    double sum = 0;
    for (const Vector& k : k_[layer]) {
      double score = 0;
      for (std::size_t d = 0; d < dim; ++d) score += q[head * dim + d] * k[kv_at + d];
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
      sum += weights.back();
    }
    for (std::size_t t = 0; t < weights.size(); ++t) {
      for (std::size_t d = 0; d < dim; ++d) {
        out[head * dim + d] += weights[t] / sum * v_[layer][t][kv_at + d];
      }
    }
  }
  Vector mlp(const std::string& prefix, const Vector& x) const {
    Vector gate = product(prefix + "gate_proj", x, config_.mlp_bias);
    const Vector up = product(prefix + "up_proj", x, config_.mlp_bias);
    for (std::size_t i = 0; i < gate.size(); ++i)
      gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return product(prefix + "down_proj", gate, config_.mlp_bias);
  }

  const ModelConfig& config_;
  const RandomTensors& tensors_;
  std::uint32_t position_ = 0;
  std::vector<std::vector<Vector>> k_, v_;  // [layer][token][kv_head][dim]
};

std::vector<std::uint32_t> random_tokens(const ModelConfig& config, std::size_t count) {
  std::mt19937 random(3);
  std::vector<std::uint32_t> tokens(count);
  for (auto& token : tokens) token = random() % config.vocab_size;
  return tokens;
}

Weights build(const ModelConfig& config, const RandomTensors& tensors) {
  ThreadTeam team(2);
  return build_weights(config, tensors, team, {});
}

struct Feature {
  const char* name;
  void (*apply)(ModelConfig&);
};

class ForwardFeature : public testing::TestWithParam<Feature> {};

TEST_P(ForwardFeature, EqualsTheTwin) {
  ModelConfig config = test::odd_config();
  GetParam().apply(config);
  const RandomTensors tensors(config, 11, 0.25F);
  const Weights weights = build(config, tensors);
  const auto tokens = random_tokens(config, 90);
  Twin twin(config, tensors);
  PagedMemory memory(config, 90, 7);
  Forward forward(weights, {2, 64});
  // Two prefills and then single tokens, each compared.
  const std::vector<std::size_t> ends{70, 85, 86, 87, 88, 89, 90};
  std::size_t start = 0;
  for (const std::size_t end : ends) {
    Vector expected;
    for (std::size_t i = start; i < end; ++i) expected = twin.step(tokens[i]);
    const auto logits = forward.run(std::span(tokens).subspan(start, end - start),
                                    static_cast<std::uint32_t>(start), memory.kv());
    ASSERT_EQ(logits.size(), expected.size());
    for (std::size_t id = 0; id < expected.size(); ++id) {
      ASSERT_NEAR(logits[id], expected[id], 2e-4) << "token " << end - 1 << " logit " << id;
    }
    start = end;
  }
  // KV at rest: [layer][K, V][kv_head][token][head_dim].
  const std::size_t dim = config.head_dim;
  for (std::uint32_t layer = 0; layer < config.layers; ++layer) {
    for (std::uint32_t t = 0; t < tokens.size(); ++t) {
      for (std::size_t i = 0; i < config.kv_size(); ++i) {
        const std::size_t row = i / dim * 7 + t % 7;
        const std::size_t plane = std::size_t{config.kv_heads} * 7;
        const float* block = memory.block(t / 7).data();
        ASSERT_NEAR(block[((2 * layer) * plane + row) * dim + i % dim], twin.k(layer, t)[i], 1e-4);
        ASSERT_NEAR(block[((2 * layer + 1) * plane + row) * dim + i % dim], twin.v(layer, t)[i],
                    1e-4);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Features, ForwardFeature,
    testing::Values(Feature{"llama", [](ModelConfig&) {}},
                    Feature{"tied", [](ModelConfig& c) { c.tied_embeddings = true; }},
                    Feature{"qwen2_bias", [](ModelConfig& c) { c.qkv_bias = true; }},
                    Feature{"every_bias",
                            [](ModelConfig& c) { c.qkv_bias = c.output_bias = c.mlp_bias = true; }},
                    Feature{"qwen3_qk_norm", [](ModelConfig& c) { c.qk_norm = true; }},
                    Feature{"no_gqa", [](ModelConfig& c) { c.kv_heads = 6; }},
                    Feature{"one_kv_head", [](ModelConfig& c) { c.kv_heads = 1; }},
                    Feature{"wide_heads", [](ModelConfig& c) { c.head_dim = 32; }},
                    Feature{"wide_mlp", [](ModelConfig& c) { c.intermediate_size = 700; }},
                    Feature{"rope_linear",
                            [](ModelConfig& c) {
                              c.rope_scaling = {RopeScaling::Kind::linear, 4, 1, 4, 1};
                            }},
                    Feature{"rope_llama3",
                            [](ModelConfig& c) {
                              c.rope_scaling = {RopeScaling::Kind::llama3, 8, 1, 4, 64};
                            }}),
    [](const testing::TestParamInfo<Feature>& each) { return each.param.name; });

class ForwardTest : public testing::Test {
 protected:
  ModelConfig config_ = test::odd_config();
  RandomTensors tensors_{config_, 5};
  Weights weights_ = build(config_, tensors_);
};

TEST_F(ForwardTest, ChunksAndThreadsChangeNothingBeyondRounding) {
  const auto tokens = random_tokens(config_, 200);
  PagedMemory whole(config_, 200, 16);
  Forward all_at_once(weights_, {1, 200});
  const auto expected = all_at_once.run(tokens, 0, whole.kv());
  for (const ForwardOptions options : {ForwardOptions{1, 7}, {2, 64}, {3, 1}, {2, 199}}) {
    PagedMemory memory(config_, 200, 16);
    Forward forward(weights_, options);
    const auto logits = forward.run(tokens, 0, memory.kv());
    for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], 1e-4);
  }
}

TEST_F(ForwardTest, TheSameSplitGivesTheSameBits) {
  const auto tokens = random_tokens(config_, 100);
  std::vector<std::vector<float>> results;
  for (int round = 0; round < 3; ++round) {
    PagedMemory memory(config_, 100, round == 2 ? 7 : 16);  // nor does the block size change a bit
    Forward forward(weights_, {2, 64});
    const auto logits = forward.run(tokens, 0, memory.kv());
    results.emplace_back(logits.begin(), logits.end());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// Lets a layer's old KV arrive only when it is asked for, as a fetch does.
class LateLayers final : public LayerGate {
 public:
  LateLayers(PagedMemory& source, PagedMemory& target, std::size_t old_blocks, std::uint32_t layers)
      : source_(source), target_(target), old_blocks_(old_blocks), layers_(layers) {}

  void wait(std::uint32_t layer) override {
    waited_.push_back(layer);
    for (std::size_t i = 0; i < old_blocks_; ++i) {
      const std::size_t floats = source_.block(i).size() / layers_;
      std::copy_n(source_.block(i).begin() + static_cast<std::ptrdiff_t>(layer * floats), floats,
                  target_.block(i).begin() + static_cast<std::ptrdiff_t>(layer * floats));
    }
  }
  const std::vector<std::uint32_t>& waited() const { return waited_; }

 private:
  PagedMemory& source_;
  PagedMemory& target_;
  std::size_t old_blocks_;
  std::uint32_t layers_;
  std::vector<std::uint32_t> waited_;
};

TEST_F(ForwardTest, ReadsALayerOnlyAfterItsGate) {
  const auto tokens = random_tokens(config_, 100);
  PagedMemory computed(config_, 100, 16);
  Forward forward(weights_, {2, 8});
  const auto cold = forward.run(tokens, 0, computed.kv());
  const std::vector<float> expected(cold.begin(), cold.end());

  PagedMemory late(config_, 100, 16);  // NaN until the gate fills it
  LateLayers gate(computed, late, 3, config_.layers);
  const auto logits = forward.run(std::span(tokens).subspan(48), 48, late.kv(), &gate);
  EXPECT_EQ(gate.waited(), (std::vector<std::uint32_t>{0, 1}));  // once each, in order
  for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], 1e-4);
}

TEST_F(ForwardTest, AGateThatThrowsLeavesTheEngineUsable) {
  class Broken final : public LayerGate {
    void wait(std::uint32_t layer) override {
      if (layer == 1) throw std::runtime_error("lost");
    }
  } broken;
  const auto tokens = random_tokens(config_, 40);
  PagedMemory memory(config_, 40, 16);
  Forward forward(weights_, {2, 64});
  EXPECT_THROW(forward.run(tokens, 0, memory.kv(), &broken), std::runtime_error);
  EXPECT_FALSE(std::isnan(forward.run(tokens, 0, memory.kv())[0]));
}

TEST_F(ForwardTest, ErrorsNameWhatIsWrong) {
  Forward forward(weights_);
  PagedMemory memory(config_, 32, 16);
  const auto message = [&](std::vector<std::uint32_t> tokens, std::uint32_t start) {
    return test::error_of<std::invalid_argument>([&] { forward.run(tokens, start, memory.kv()); });
  };
  EXPECT_EQ(message({}, 0), "a forward pass needs at least one token");
  EXPECT_EQ(message({5, 300}, 0), "token id 300 is beyond the vocabulary of 300");
  EXPECT_EQ(message({5}, 256), "position 256 is beyond the model's context of 256 tokens");
  EXPECT_EQ(message({5}, 32), "2 blocks of 16 tokens cannot hold 33 tokens");
  EXPECT_THROW(Forward(weights_, {1, 0}), std::invalid_argument);
}

}  // namespace
}  // namespace terrace::engine
