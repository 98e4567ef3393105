#include "engine/sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace terrace::engine {
namespace {

std::uint32_t argmax_of(std::vector<float> logits) {
  return argmax(logits);
}

TEST(SamplerTest, TakesTheLargest) {
  EXPECT_EQ(argmax_of({-3, 2, 7, 6.9F}), 2U);
}
TEST(SamplerTest, OfEqualOnesTheLowestId) {
  EXPECT_EQ(argmax_of({1, 5, 5, 5}), 1U);
}
TEST(SamplerTest, NeverANan) {
  EXPECT_EQ(argmax_of({NAN, -2, NAN, -1, NAN}), 3U);
}
TEST(SamplerTest, AllNegativeInfinityIsTheFirst) {
  EXPECT_EQ(argmax_of({-INFINITY, -INFINITY}), 0U);
}

}  // namespace
}  // namespace terrace::engine
