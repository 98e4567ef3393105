// Another clock's time as it was at the last look: what happens at one time reads it once. A look at a
// clock waits for all that the processor has begun, and so for every miss of its caches.
// Thread rule: one caller at a time.
#pragma once

#include "terrace/io.hpp"

namespace terrace::internal {

class HeldClock final : public Clock {
 public:
  explicit HeldClock(const Clock& source) noexcept : source_(source), time_(source.now()) {}
  void look() noexcept { time_ = source_.now(); }
  Time now() const noexcept override { return time_; }

 private:
  const Clock& source_;
  Time time_;
};

}  // namespace terrace::internal
