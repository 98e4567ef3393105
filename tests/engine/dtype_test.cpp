// Conversion to float32 is exact for every one of the 65,536 values of each 16-bit type.
#include "engine/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace terrace::engine {
namespace {

// From the definition of the format: sign, exponent, fraction.
double value_of(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(bits & ((1U << fraction_bits) - 1), -fraction_bits);
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : NAN;
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

void expect_exact(FloatType type, int exponent_bits, int fraction_bits) {
  std::vector<std::uint16_t> bits(65536);
  for (std::uint32_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(bits.size());
  convert_to_f32(type, std::as_bytes(std::span(bits)), values);
  for (std::uint32_t i = 0; i < bits.size(); ++i) {
    const double exact = value_of(i, exponent_bits, fraction_bits);
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
    } else {
      ASSERT_EQ(double{values[i]}, exact) << i;
      ASSERT_EQ(std::signbit(values[i]), std::signbit(exact)) << i;
    }
  }
}

TEST(DtypeTest, EveryF16IsExact) {
  expect_exact(FloatType::f16, 5, 10);
}
TEST(DtypeTest, EveryBf16IsExact) {
  expect_exact(FloatType::bf16, 8, 7);
}

TEST(DtypeTest, SourceNeedsNoAlignment) {
  const float values[] = {1.5F, -2.25F};
  std::vector<std::byte> shifted(1 + sizeof values);
  std::memcpy(shifted.data() + 1, values, sizeof values);
  std::vector<float> out(2);
  convert_to_f32(FloatType::f32, std::span(shifted).subspan(1), out);
  EXPECT_EQ(out, (std::vector<float>{1.5F, -2.25F}));
}

TEST(DtypeTest, NamesAndSizes) {
  EXPECT_EQ(dtype_bytes("BF16"), 2U);
  EXPECT_EQ(dtype_bytes("F8_E4M3"), 1U);
  EXPECT_EQ(dtype_bytes("I64"), 8U);
  EXPECT_EQ(dtype_bytes("bf16"), 0U);
  EXPECT_EQ(float_type("F16"), FloatType::f16);
  EXPECT_FALSE(float_type("F64"));
}

}  // namespace
}  // namespace terrace::engine
