// TERRACE_ASSERT: a programmer's error ends the process, in release builds too, with expression,
// place and one value.
#pragma once

#include <cstdint>

namespace terrace::internal {
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line,
                                   std::uint64_t value) noexcept;
}  // namespace terrace::internal

#define TERRACE_ASSERT(expression, value)                                       \
  (static_cast<bool>(expression)                                                \
       ? static_cast<void>(0)                                                   \
       : ::terrace::internal::assertion_failed(#expression, __FILE__, __LINE__, \
                                               static_cast<std::uint64_t>(value)))
