#include "base/assert.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace terrace::internal {

void assertion_failed(const char* expression, const char* file, int line,
                      std::uint64_t value) noexcept {
  std::fprintf(stderr, "terrace: assertion failed: %s (value %" PRIu64 ") at %s:%d\n", expression,
               value, file, line);
  std::abort();
}

}  // namespace terrace::internal
