#include "engine/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace terrace::engine {
namespace {

ModelConfig llama31() {
  ModelConfig config;
  config.head_dim = 128;
  config.rope_theta = 500000;
  config.rope_scaling = {RopeScaling::Kind::llama3, 8, 1, 4, 8192};
  return config;
}

TEST(RopeTest, FrequenciesArePowersOfTheta) {
  ModelConfig config;
  config.head_dim = 4;
  const Rope rope(config);
  ASSERT_EQ(rope.frequencies().size(), 2U);
  EXPECT_DOUBLE_EQ(rope.frequencies()[0], 1.0);
  EXPECT_DOUBLE_EQ(rope.frequencies()[1], 0.01);
}

TEST(RopeTest, LinearDividesEveryFrequency) {
  ModelConfig config;
  config.head_dim = 4;
  config.rope_scaling = {RopeScaling::Kind::linear, 4, 1, 4, 1};
  const Rope rope(config);
  EXPECT_DOUBLE_EQ(rope.frequencies()[0], 0.25);
  EXPECT_DOUBLE_EQ(rope.frequencies()[1], 0.0025);
}

// Worked by hand from the published rule. Wavelength of pair i: 2 pi 500000^(i/64).
//   i = 0: 6.3, far below 8192 / 4: kept
//   i = 30: 2947.6, between 2048 and 8192: 2.7792 turns, kept share (2.7792 - 1) / 3 = 0.59308
//   i = 63: 2.56e6, above 8192: divided by 8
TEST(RopeTest, Llama3KeepsShortBlendsMiddleAndStretchesLongWavelengths) {
  const Rope rope(llama31());
  const auto plain = [](int i) { return std::pow(500000.0, -i / 64.0); };
  EXPECT_DOUBLE_EQ(rope.frequencies()[0], 1.0);
  const double turns = 8192 * plain(30) / 6.283185307179586;
  const double kept = (turns - 1) / 3;
  EXPECT_NEAR(kept, 0.593, 0.001);
  EXPECT_DOUBLE_EQ(rope.frequencies()[30], plain(30) * (kept + (1 - kept) / 8));
  EXPECT_DOUBLE_EQ(rope.frequencies()[63], plain(63) / 8);
}

TEST(RopeTest, AnglesStayExactAtLargePositions) {
  const Rope rope(llama31());
  std::vector<float> cosines(64);
  std::vector<float> sines(64);
  rope.angles(131071, cosines.data(), sines.data());
  EXPECT_FLOAT_EQ(cosines[0], static_cast<float>(std::cos(131071.0)));
  EXPECT_FLOAT_EQ(sines[0], static_cast<float>(std::sin(131071.0)));
  for (int i = 0; i < 64; ++i) {
    EXPECT_NEAR(cosines[i] * cosines[i] + sines[i] * sines[i], 1, 1e-6);
  }
}

}  // namespace
}  // namespace terrace::engine
