// See cache_lines.hpp.
#include "io/cache_lines.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace terrace::internal {

#if defined(__x86_64__)

namespace {

constexpr std::size_t line_bytes = 64;

bool has_clflushopt() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_CLFLUSHOPT) != 0;
}

__attribute__((target("clflushopt"))) void flush(const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += line_bytes)
    _mm_clflushopt(const_cast<std::byte*>(from + at));
}

}  // namespace

void flush_lines(std::span<const std::byte> memory) noexcept {
  static const bool possible = has_clflushopt();
  if (possible) flush(memory.data(), memory.size());
}

#else

void flush_lines(std::span<const std::byte>) noexcept {}

#endif

}  // namespace terrace::internal
