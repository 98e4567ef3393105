// Time that passes when the test says so.
#pragma once

#include <chrono>

#include "terrace/io.hpp"

namespace terrace::test {

class TestClock final : public Clock {
 public:
  Time now() const noexcept override { return now_; }
  void advance(Time by) { now_ += by; }

 private:
  Time now_ = std::chrono::seconds(1);
};

}  // namespace terrace::test
