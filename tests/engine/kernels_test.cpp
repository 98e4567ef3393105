// Every copy of the kernels that this processor can run, against plain loops in double.
#include "engine/kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace terrace::engine {
namespace {

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> list;
  for (const Kernels* const* entry = usable_kernels(); *entry != nullptr; ++entry) {
    list.push_back(*entry);
  }
  return list;
}

class KernelsTest : public testing::TestWithParam<const Kernels*> {
 protected:
  std::vector<float> random(std::size_t count, float spread) {
    std::uniform_real_distribution<float> uniform(-spread, spread);
    std::vector<float> values(count);
    for (float& value : values) value = uniform(random_);
    return values;
  }
  std::uint32_t pick(std::initializer_list<std::uint32_t> list) {
    return list.begin()[random_() % list.size()];
  }

  const Kernels& kernels_ = *GetParam();
  std::mt19937 random_{20240607};
};

// One attention problem: a chunk of tokens at a position, over paged KV.
struct Problem {
  std::uint32_t tokens, start, kv_heads, group, dim, block_tokens;
  std::vector<float> q;                    // [tokens][kv_heads * group][dim]
  std::vector<std::vector<float>> blocks;  // [K, V][kv_head][token][dim] each
  std::vector<const std::byte*> table;

  std::size_t q_stride() const { return std::size_t{kv_heads} * group * dim; }
  const float* row(std::uint32_t component, std::uint32_t head, std::uint32_t token) const {
    const std::size_t at =
        ((std::size_t{component} * kv_heads + head) * block_tokens + token % block_tokens) * dim;
    return blocks[token / block_tokens].data() + at;
  }
};

void attend_plainly(const Problem& p, std::uint32_t token, std::uint32_t head,
                    std::span<double> out) {
  const float* q = p.q.data() + token * p.q_stride() + std::size_t{head} * p.dim;
  const std::uint32_t end = p.start + token + 1;
  std::vector<double> weights(end);
  double most = -std::numeric_limits<double>::infinity();
  for (std::uint32_t t = 0; t < end; ++t) {
    for (std::uint32_t d = 0; d < p.dim; ++d) {
      weights[t] += double{q[d]} * p.row(0, head / p.group, t)[d] / std::sqrt(double(p.dim));
    }
    most = std::max(most, weights[t]);
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - most);
  for (std::uint32_t d = 0; d < p.dim; ++d) {
    out[d] = 0;
    for (std::uint32_t t = 0; t < end; ++t) {
      out[d] += weights[t] / sum * p.row(1, head / p.group, t)[d];
    }
  }
}

std::vector<float> attend_fast(const Kernels& kernels, const Problem& p) {
  std::vector<float> out(p.q.size(), NAN);
  std::vector<float> scratch(kernels.scratch_floats(p.dim), NAN);
  const std::uint32_t rows = p.tokens * p.group;
  for (std::uint32_t head = 0; head < p.kv_heads; ++head) {
    for (std::uint32_t first = 0; first < rows; first += kernels.panel_rows) {
      const std::size_t head_floats = std::size_t{p.block_tokens} * p.dim;
      AttentionPanel panel{};
      panel.kv = {p.table.data(), p.block_tokens, head * head_floats * sizeof(float),
                  p.kv_heads * head_floats * sizeof(float)};
      panel.head_dim = p.dim;
      panel.group = p.group;
      panel.first_row = first;
      panel.rows = std::min(kernels.panel_rows, rows - first);
      panel.first_position = p.start;
      panel.scale = 1.0F / std::sqrt(static_cast<float>(p.dim));
      panel.q = p.q.data() + std::size_t{head} * p.group * p.dim;
      panel.out = out.data() + std::size_t{head} * p.group * p.dim;
      panel.q_stride = panel.out_stride = p.q_stride();
      panel.scratch = scratch.data();
      kernels.attend(panel);
    }
  }
  return out;
}

TEST_P(KernelsTest, AttentionEqualsPlainLoops) {
  for (int round = 0; round < 60; ++round) {
    Problem p{};
    p.tokens = pick({1, 2, 5, 13, 40});
    p.start = pick({0, 1, 6, 63, 64, 130});
    p.kv_heads = pick({1, 2, 3});
    p.group = pick({1, 2, 3, 4, 7});
    p.dim = pick({2, 8, 10, 64, 80});
    p.block_tokens = pick({1, 3, 7, 16, 64});
    const float spread = round % 3 == 0 ? 8.0F : 1.0F;  // sharp and flat softmax
    p.q = random(p.tokens * p.q_stride(), spread);
    // Rows beyond the last token are NaN: they must not be read into a result.
    const std::uint32_t end = p.start + p.tokens;
    for (std::uint32_t first = 0; first < end; first += p.block_tokens) {
      p.blocks.push_back(random(std::size_t{2} * p.kv_heads * p.block_tokens * p.dim, spread));
      for (std::uint32_t token = end; token < first + p.block_tokens; ++token) {
        for (std::uint32_t half = 0; half < 2 * p.kv_heads; ++half) {
          float* row = p.blocks.back().data() +
                       (std::size_t{half} * p.block_tokens + token % p.block_tokens) * p.dim;
          std::fill_n(row, p.dim, NAN);
        }
      }
    }
    for (auto& block : p.blocks) p.table.push_back(std::as_bytes(std::span(block)).data());

    const std::vector<float> fast = attend_fast(kernels_, p);
    std::vector<double> plain(p.dim);
    for (std::uint32_t token = 0; token < p.tokens; ++token) {
      for (std::uint32_t head = 0; head < p.kv_heads * p.group; ++head) {
        attend_plainly(p, token, head, plain);
        for (std::uint32_t d = 0; d < p.dim; ++d) {
          const float value = fast[token * p.q_stride() + std::size_t{head} * p.dim + d];
          // Scores reach 8 * 8 * sqrt(dim) = 600 in the sharp case: their rounding is what is seen
          // here.
          ASSERT_NEAR(value, plain[d], spread > 1 ? 1e-3 : 4e-6)
              << "tokens " << p.tokens << " start " << p.start << " kv_heads " << p.kv_heads
              << " group " << p.group << " dim " << p.dim << " block " << p.block_tokens
              << " token " << token << " head " << head << " d " << d;
        }
      }
    }
  }
}

// The order of additions depends on positions alone: cached KV gives the bits that computed KV
// gives.
TEST_P(KernelsTest, AttentionIsTheSameBitsForEveryBlockSize) {
  constexpr std::uint32_t kTokens = 150;
  const std::vector<float> q = random(10 * 2 * 16, 1);
  const std::vector<float> kv = random(2 * kTokens * 16, 1);  // [K, V][token][dim]
  std::vector<float> first;
  for (const std::uint32_t block_tokens : {1U, 7U, 16U, 64U}) {
    Problem p{10, kTokens - 10, 1, 2, 16, block_tokens, q, {}, {}};
    for (std::uint32_t token = 0; token < kTokens; ++token) {
      if (token % block_tokens == 0) p.blocks.emplace_back(2 * block_tokens * 16);
      for (std::uint32_t component = 0; component < 2; ++component) {
        std::copy_n(kv.data() + (component * kTokens + token) * 16, 16,
                    const_cast<float*>(p.row(component, 0, token)));
      }
    }
    for (auto& block : p.blocks) p.table.push_back(std::as_bytes(std::span(block)).data());
    const std::vector<float> out = attend_fast(kernels_, p);
    if (first.empty()) first = out;
    EXPECT_EQ(out, first) << "block of " << block_tokens;
  }
}

TEST_P(KernelsTest, RmsNormEqualsPlainLoops) {
  for (const std::size_t size : {1U, 7U, 16U, 60U, 64U, 173U, 4096U}) {
    std::vector<float> x = random(size, 3);
    const std::vector<float> weight = random(size, 2);
    double squares = 0;
    for (const float value : x) squares += double{value} * value;
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-5);
    const std::vector<float> before = x;
    kernels_.rms_norm(x.data(), weight.data(), 1e-5F, x.data(), size);  // in place
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_NEAR(x[i], before[i] * inverse * weight[i], 2e-6) << size << " " << i;
    }
  }
}

TEST_P(KernelsTest, SiluEqualsPlainLoopsAndNeverOverflows) {
  std::vector<float> gate = random(1001, 20);
  for (const float extreme : {0.0F, -0.0F, 87.0F, -87.0F, -89.0F, 1e4F, -1e4F, 3e38F, -3e38F}) {
    gate.push_back(extreme);
  }
  const std::vector<float> up(gate.size(), 1.0F);
  std::vector<float> out(gate.size());
  kernels_.silu_multiply(gate.data(), up.data(), out.data(), gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double exact = gate[i] / (1 + std::exp(-double{gate[i]}));
    ASSERT_NEAR(out[i], exact, 1e-6 * std::abs(exact) + 1e-30) << gate[i];
  }
}

TEST_P(KernelsTest, RotateEqualsPlainLoops) {
  for (const std::size_t half : {1U, 4U, 5U, 32U, 64U}) {
    std::vector<float> head = random(2 * half, 2);
    const std::vector<float> cosines = random(half, 1);
    const std::vector<float> sines = random(half, 1);
    const std::vector<float> before = head;
    kernels_.rotate(head.data(), cosines.data(), sines.data(), head.data(), half);  // in place
    for (std::size_t i = 0; i < half; ++i) {
      const double a = before[i];
      const double b = before[i + half];
      EXPECT_NEAR(head[i], a * cosines[i] - b * sines[i], 1e-6);
      EXPECT_NEAR(head[i + half], b * cosines[i] + a * sines[i], 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelsTest, testing::ValuesIn(all_kernels()),
                         [](const testing::TestParamInfo<const Kernels*>& each) {
                           std::string name = each.param->name;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace terrace::engine
