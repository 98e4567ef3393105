#include "engine/dtype.hpp"

#include <bit>
#include <cstring>

namespace terrace::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

float from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// Branch-free, so that the loop below is vectorised: the exponent is rebiased by a multiplication
// by 2^112, which is exact and turns F16 subnormals into normal float32; infinities and NaNs need
// the full exponent instead.
float from_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t magnitude = std::uint32_t{bits & 0x7FFFU} << 13;
  const float rebiased = std::bit_cast<float>(magnitude) * 0x1p112F;
  const std::uint32_t special = magnitude | 0x7F800000U;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(rebiased);
  return std::bit_cast<float>(sign | (magnitude >= 0x0F800000U ? special : finite));
}

template <float (*Convert)(std::uint16_t)>
void convert_16bit(const std::byte* from, float* to, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
    to[i] = Convert(bits);
  }
}

}  // namespace

std::uint32_t dtype_bytes(std::string_view name) noexcept {
  struct Entry {
    std::string_view name;
    std::uint32_t bytes;
  };
  static constexpr Entry kTable[] = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1},
                                     {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
                                     {"BF16", 2},    {"I32", 4}, {"U32", 4}, {"F32", 4},
                                     {"I64", 8},     {"U64", 8}, {"F64", 8}};
  for (const Entry& entry : kTable) {
    if (entry.name == name) return entry.bytes;
  }
  return 0;
}

std::optional<FloatType> float_type(std::string_view name) noexcept {
  if (name == "F32") return FloatType::f32;
  if (name == "F16") return FloatType::f16;
  if (name == "BF16") return FloatType::bf16;
  return std::nullopt;
}

void convert_to_f32(FloatType type, std::span<const std::byte> from, std::span<float> to) noexcept {
  switch (type) {
    case FloatType::f32:
      std::memcpy(to.data(), from.data(), to.size_bytes());
      return;
    case FloatType::f16:
      convert_16bit<from_f16>(from.data(), to.data(), to.size());
      return;
    case FloatType::bf16:
      convert_16bit<from_bf16>(from.data(), to.data(), to.size());
      return;
  }
}

}  // namespace terrace::engine
