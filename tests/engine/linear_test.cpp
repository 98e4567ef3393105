// Packed products against plain loops in double.
#include "engine/linear.hpp"

#include <gtest/gtest.h>

#include <random>

#include "engine/kernels.hpp"
#include "engine/thread_team.hpp"

namespace terrace::engine {
namespace {

struct Case {
  std::uint32_t rows, inputs;
  std::vector<std::uint32_t> slices;
  bool bias;
};

class LinearTest : public testing::TestWithParam<Case> {};

TEST_P(LinearTest, EqualsPlainLoops) {
  const SingleThreadedLibrary single;
  const Case& c = GetParam();
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto fill = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = uniform(random);
    return values;
  };
  const std::vector<float> x = fill(std::size_t{c.rows} * c.inputs);
  Linear linear(c.inputs, c.slices, c.bias);
  Multiplier multiplier(1);
  for (std::uint32_t slice = 0; slice < c.slices.size(); ++slice) {
    std::vector<float> weights = fill(std::size_t{c.slices[slice]} * c.inputs);
    const std::vector<float> bias = fill(c.bias ? c.slices[slice] : 0);
    const std::vector<float> plain = weights;
    linear.pack(slice, weights, bias);
    multiplier.prepare(linear, 1);  // another number of rows in between
    multiplier.prepare(linear, c.rows);
    const float* out = multiplier.multiply(linear, slice, x.data(), 0);
    for (std::uint32_t row = 0; row < c.rows; ++row) {
      for (std::uint32_t o = 0; o < c.slices[slice]; ++o) {
        double sum = c.bias ? bias[o] : 0;
        for (std::uint32_t i = 0; i < c.inputs; ++i) {
          sum += double{x[row * c.inputs + i]} * plain[o * c.inputs + i];
        }
        ASSERT_NEAR(out[row * c.slices[slice] + o], sum, 1e-5 * c.inputs / 16);
      }
    }
  }
}

// Guards the speed: for some shapes and strides the library silently falls back to plain loops, a
// hundred times slower.
TEST_P(LinearTest, NeverUsesTheLibrarysReferenceCode) {
  const SingleThreadedLibrary single;
  if (std::string(best_kernels().name) == "portable") GTEST_SKIP() << "needs AVX2";
  const Linear linear(GetParam().inputs, GetParam().slices, GetParam().bias);
  Multiplier multiplier(1);
  multiplier.prepare(linear, GetParam().rows);
  EXPECT_EQ(multiplier.kernel_name(linear).find("ref"), std::string::npos)
      << multiplier.kernel_name(linear);
}

INSTANTIATE_TEST_SUITE_P(Cases, LinearTest,
                         testing::Values(Case{1, 64, {64}, false}, Case{5, 172, {64}, true},
                                         Case{33, 60, {256, 44}, true}, Case{2, 10, {1, 3}, false},
                                         Case{64, 256, {256, 256, 16}, false}));

}  // namespace
}  // namespace terrace::engine
