// The engine against the published answers of a real model, computed elsewhere in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "engine/model.hpp"
#include "engine/paged_memory.hpp"
#include "engine/sampler.hpp"
#include "support/shared_data.hpp"

namespace terrace::engine {
namespace {

using test::PagedMemory;
using Tokens = std::vector<std::uint32_t>;

const std::filesystem::path kFolder = "models/stories260K";

// How a prompt is cut: whole, or in pieces that end where a cached prefix could end.
struct Way {
  std::uint32_t block_tokens;
  std::vector<std::uint32_t> blocks_a_piece;  // taken in turn; empty: all at once
  unsigned threads;
  std::uint32_t chunk_tokens;
};

class Golden : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override { TERRACE_REQUIRE_SHARED(kFolder); }
};

std::span<const float> prefill(Forward& forward, const Tokens& prompt, const PagedMemory& memory,
                               const Way& way) {
  std::span<const float> logits;
  std::uint32_t start = 0;
  for (std::size_t piece = 0; start < prompt.size(); ++piece) {
    std::size_t count = prompt.size() - start;
    if (!way.blocks_a_piece.empty()) {
      const auto blocks = way.blocks_a_piece[piece % way.blocks_a_piece.size()];
      count = std::min<std::size_t>(count, blocks * way.block_tokens);
    }
    logits = forward.run(std::span(prompt).subspan(start, count), start, memory.kv());
    start += static_cast<std::uint32_t>(count);
  }
  return logits;
}

// Generates until `most` tokens or BOS, as the reference did.
Tokens generate(Forward& forward, const ModelConfig& config, const Tokens& prompt, std::size_t most,
                const Way& way) {
  const PagedMemory memory(config, static_cast<std::uint32_t>(prompt.size() + most),
                           way.block_tokens);
  Tokens answer{argmax(prefill(forward, prompt, memory, way))};
  while (answer.size() < most && answer.back() != 1) {
    const auto at = static_cast<std::uint32_t>(prompt.size() + answer.size() - 1);
    answer.push_back(argmax(forward.run({&answer.back(), 1}, at, memory.kv())));
  }
  return answer;
}

TEST_P(Golden, GreedyIdsOfAllCasesAreTheReference) {
  const auto golden = test::read_json(test::shared_data() / kFolder / "golden_greedy.json");
  const auto model = load_model((test::shared_data() / kFolder / "hf").string());
  Forward forward(model.weights, {GetParam().threads, GetParam().chunk_tokens});
  ASSERT_EQ(golden.at("cases").size(), 9U);
  for (const auto& golden_case : golden.at("cases")) {
    const auto prompt = golden_case.at("prompt_ids").get<Tokens>();
    const auto expected = golden_case.at("generated_ids").get<Tokens>();
    EXPECT_EQ(generate(forward, model.config(), prompt, expected.size(), GetParam()), expected)
        << golden_case.at("name");
  }
}

TEST_P(Golden, KeysAndValuesAreTheReferenceWithinRounding) {
  const auto about = test::read_json(test::shared_data() / kFolder / "kv_prefix.json");
  const auto ids = about.at("ids").get<Tokens>();
  std::ifstream file(test::shared_data() / kFolder / "kv_prefix.f32", std::ios::binary);
  const auto model = load_model((test::shared_data() / kFolder / "hf").string());
  const ModelConfig& config = model.config();
  std::vector<float> reference(ids.size() * config.layers * 2 * config.kv_size());
  ASSERT_TRUE(file.read(reinterpret_cast<char*>(reference.data()),
                        static_cast<std::streamsize>(reference.size() * sizeof(float))));
  PagedMemory memory(config, static_cast<std::uint32_t>(ids.size()), GetParam().block_tokens);
  Forward forward(model.weights, {GetParam().threads, GetParam().chunk_tokens});
  prefill(forward, ids, memory, GetParam());

  const std::uint32_t dim = config.head_dim;
  const std::uint32_t block_tokens = GetParam().block_tokens;
  std::size_t next = 0;  // reference: [layer][K, V][position][kv_head][dim]
  float worst = 0;
  for (std::uint32_t plane = 0; plane < 2 * config.layers; ++plane) {
    for (std::uint32_t position = 0; position < ids.size(); ++position) {
      for (std::uint32_t head = 0; head < config.kv_heads; ++head) {
        const std::size_t row =
            (std::size_t{plane} * config.kv_heads + head) * block_tokens + position % block_tokens;
        const float* ours = memory.block(position / block_tokens).data() + row * dim;
        for (std::uint32_t d = 0; d < dim; ++d, ++next) {
          // The reference rotates neighbouring pairs (2i, 2i+1), Hugging Face's order has (i, i +
          // dim/2).
          const bool key = plane % 2 == 0;
          const float value = key ? ours[d / 2 + d % 2 * (dim / 2)] : ours[d];
          const float error =
              std::abs(value - reference[next]) / std::max(1.0F, std::abs(reference[next]));
          ASSERT_FALSE(std::isnan(error)) << "plane " << plane << " position " << position;
          worst = std::max(worst, error);
        }
      }
    }
  }
  EXPECT_EQ(next, reference.size());
  EXPECT_LT(worst, 1e-5F);  // a few dozen roundings of 6e-8 through five layers
  RecordProperty("worst_error", std::to_string(worst));
}

std::string name_of(const testing::TestParamInfo<Way>& info) {
  const Way& way = info.param;
  std::ostringstream name;
  name << "block" << way.block_tokens << "_chunk" << way.chunk_tokens << "_threads" << way.threads;
  for (const auto blocks : way.blocks_a_piece) name << "_" << blocks;
  return name.str();
}

INSTANTIATE_TEST_SUITE_P(Ways, Golden,
                         testing::Values(Way{1, {}, 2, 512}, Way{7, {}, 2, 512},
                                         Way{16, {}, 2, 512}, Way{64, {}, 2, 512},
                                         Way{1, {3, 1, 17}, 2, 512}, Way{7, {1, 5, 2}, 2, 512},
                                         Way{16, {1}, 2, 512}, Way{64, {1, 2}, 2, 512},
                                         Way{16, {}, 1, 512}, Way{16, {}, 3, 512},
                                         Way{16, {}, 2, 37}, Way{7, {}, 2, 1}),
                         name_of);

}  // namespace
}  // namespace terrace::engine
