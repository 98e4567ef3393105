// The built-in models: the same everywhere, and worth talking to.
#include "engine/builtin.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/model.hpp"
#include "engine/paged_memory.hpp"
#include "engine/sampler.hpp"
#include "engine/weights_digest.hpp"

namespace terrace::engine {
namespace {

std::vector<std::uint32_t> tokens_of(const std::string& text) {
  std::vector<std::uint32_t> tokens{256};
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string digest_of(BuiltinSize size) {
  ThreadTeam team(2);
  return to_hex(hash_weights(BuiltinSource(size), team, {}));
}

// A change of either is a change of every key of every cache that was filled with that model.
TEST(BuiltinTest, WeightsAreGolden) {
  EXPECT_EQ(digest_of(BuiltinSize::tiny),
            "746b1f23990da86b0e8d9124c3d3efe13225ccf64c612fea3bda71d7487fede9");
  EXPECT_EQ(digest_of(BuiltinSize::small),
            "a45b7f381cccb3dec5b19e9fe84cb945cd714b98b6788a231730daac868e3483");
}

TEST(BuiltinTest, SizesAreWhatTheDemoNeeds) {
  EXPECT_GE(builtin_config(BuiltinSize::small).max_positions, 8192U);
  const LoadedModel tiny = load_model("builtin:tiny");
  EXPECT_EQ(to_hex(tiny.weights_digest), digest_of(BuiltinSize::tiny));
  EXPECT_EQ(tiny.name, "builtin:tiny");
  EXPECT_FALSE(tiny.directory);
}

TEST(BuiltinTest, AnyPartOfATensorIsTheSameAsThatPartOfTheWhole) {
  const BuiltinSource source(BuiltinSize::tiny);
  std::vector<std::byte> whole_scratch;
  std::vector<std::byte> part_scratch;
  for (const TensorInfo& tensor : source.tensors()) {
    const auto whole = source.read(tensor, 0, tensor.elements(), whole_scratch);
    const auto part = source.read(tensor, 5, 20, part_scratch);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 20)) << tensor.name;
  }
}

struct Answer {
  std::vector<std::uint32_t> tokens;
  float least_margin = 1e9F;  // between the best two logits of any token
};

Answer answer(const LoadedModel& model, const std::vector<std::uint32_t>& prompt, std::size_t count,
              std::uint32_t chunk_tokens) {
  const auto size = static_cast<std::uint32_t>(prompt.size());
  test::PagedMemory memory(model.config(), size + static_cast<std::uint32_t>(count), 16);
  Forward forward(model.weights, {2, chunk_tokens});
  Answer result;
  std::span<const float> logits = forward.run(prompt, 0, memory.kv());
  while (true) {
    const std::uint32_t best = argmax(logits);
    result.tokens.push_back(best);
    for (std::uint32_t id = 0; id < logits.size(); ++id) {
      EXPECT_TRUE(std::isfinite(logits[id]));
      if (id != best)
        result.least_margin = std::min(result.least_margin, logits[best] - logits[id]);
    }
    if (result.tokens.size() == count) return result;
    const auto at = static_cast<std::uint32_t>(size + result.tokens.size() - 1);
    logits = forward.run({&result.tokens.back(), 1}, at, memory.kv());
  }
}

TEST(BuiltinTest, AnswersVaryArePrintableAndDependOnTheWholePrompt) {
  const LoadedModel model = load_model("builtin:tiny");
  const std::string tail = " and then they lived happily ever after.";
  const Answer one = answer(model, tokens_of("Once upon a time" + tail), 120, 512);
  const Answer two = answer(model, tokens_of("Once upon a mile" + tail), 120, 512);
  EXPECT_GT(std::set(one.tokens.begin(), one.tokens.end()).size(), 15U);
  for (const std::uint32_t token : one.tokens) EXPECT_TRUE(token >= 32 && token < 127) << token;
  EXPECT_NE(one.tokens, two.tokens);
  EXPECT_EQ(answer(model, tokens_of("Once upon a time" + tail), 120, 5).tokens, one.tokens);
  // Rounding moves these logits by some 1e-6.
  EXPECT_GT(one.least_margin, 1e-5F);
}

}  // namespace
}  // namespace terrace::engine
