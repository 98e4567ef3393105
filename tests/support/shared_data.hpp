// Where the shared test data lies, and how a test that needs it skips where it is absent.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace terrace::test {

// The CMake option TERRACE_SHARED_DATA, or the environment variable of the same name, which wins.
inline std::filesystem::path shared_data() {
  const char* from_environment = std::getenv("TERRACE_SHARED_DATA");
  return from_environment != nullptr ? from_environment : TERRACE_SHARED_DATA;
}

}  // namespace terrace::test

#define TERRACE_REQUIRE_SHARED(path)                                                   \
  if (!std::filesystem::exists(terrace::test::shared_data() / (path))) {               \
    GTEST_SKIP() << "needs " << (terrace::test::shared_data() / (path)).string()       \
                 << "; set TERRACE_SHARED_DATA to the folder of the shared test data"; \
  }                                                                                    \
  static_assert(true, "")
