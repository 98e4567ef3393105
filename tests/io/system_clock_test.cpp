// The clock of production runs forward, at the speed of the machine's.
#include "io/system_clock.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace terrace::internal {
namespace {

TEST(SystemClock, RunsForward) {
  const SystemClock clock;
  const Clock::Time start = clock.now();
  Clock::Time last = start;
  for (int i = 0; i < 1000; ++i) {
    const Clock::Time now = clock.now();
    EXPECT_GE(now, last);
    last = now;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GE(clock.now() - start, std::chrono::milliseconds(5));
}

}  // namespace
}  // namespace terrace::internal
