// The clock of production: monotonic, unaffected by changes of the time of day.
//
// Must never be read outside the seams' users (policy gets times as values).
// Thread rule: any thread.
#pragma once

#include <chrono>

#include "terrace/io.hpp"

namespace terrace::internal {

class SystemClock final : public Clock {
 public:
  Time now() const noexcept override {
    return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace terrace::internal
