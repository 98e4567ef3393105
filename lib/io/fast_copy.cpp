// Non-temporal copy kernels; see fast_copy.hpp.
#include "io/fast_copy.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TERRACE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TERRACE_SANITIZED 1
#endif
#endif

namespace terrace::internal {
namespace {

#if defined(__x86_64__)

constexpr std::size_t line_bytes = 64;
constexpr std::size_t unrolled_lines = 4;

// REQUIRES: `to` is aligned to 64; `bytes` is a multiple of 256.
__attribute__((target("avx512f"))) void stream_avx512(std::byte* to, const std::byte* from,
                                                      std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += unrolled_lines * line_bytes) {
    const __m512i a = _mm512_loadu_si512(from + at);
    const __m512i b = _mm512_loadu_si512(from + at + 64);
    const __m512i c = _mm512_loadu_si512(from + at + 128);
    const __m512i d = _mm512_loadu_si512(from + at + 192);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), a);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 64), b);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 128), c);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at + 192), d);
  }
}

// REQUIRES: as stream_avx512. Two half lines are stored one after the other, so that a line leaves
// in one piece.
__attribute__((target("avx2"))) void stream_avx2(std::byte* to, const std::byte* from,
                                                 std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 2 * line_bytes) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from + at));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from + at + 32));
    const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from + at + 64));
    const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from + at + 96));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 32), b);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 64), c);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at + 96), d);
  }
}

// Head up to a cache line, whole groups of lines past the caches, tail.
void stream(std::byte* to, const std::byte* from, std::size_t bytes, CopyKernel kernel) {
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % line_bytes;
  const std::size_t head = misaligned == 0 ? 0 : line_bytes - misaligned;
  const std::size_t body =
      (bytes - head) / (unrolled_lines * line_bytes) * (unrolled_lines * line_bytes);
  std::memcpy(to, from, head);
  if (kernel == CopyKernel::avx512) {
    stream_avx512(to + head, from + head, body);
  } else {
    stream_avx2(to + head, from + head, body);
  }
  std::memcpy(to + head + body, from + head + body, bytes - head - body);
  // Non-temporal stores are not ordered with the unlock or the flag that announces them.
  _mm_sfence();
}

#endif

}  // namespace

CopyKernel best_copy_kernel() noexcept {
#if defined(__x86_64__) && !defined(TERRACE_SANITIZED)
  if (__builtin_cpu_supports("avx512f")) return CopyKernel::avx512;
  if (__builtin_cpu_supports("avx2")) return CopyKernel::avx2;
#endif
  return CopyKernel::memcpy;
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes,
                CopyKernel kernel) noexcept {
#if defined(__x86_64__)
  if (kernel != CopyKernel::memcpy && bytes >= 2 * line_bytes)
    return stream(to, from, bytes, kernel);
#endif
  (void)kernel;
  std::memcpy(to, from, bytes);
}

}  // namespace terrace::internal
