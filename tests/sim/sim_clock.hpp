// Time that passes only when the cache looks at the world. A world in which nothing happens runs
// faster and faster, so that minutes of waiting cost some thousand looks.
// Thread rule: one thread.
#pragma once

#include <algorithm>

#include "sim/random.hpp"
#include "terrace/io.hpp"

namespace terrace::sim {

class SimClock final : public Clock {
 public:
  explicit SimClock(std::uint64_t seed) : random_(seed, "clock") {}

  Time now() const noexcept override { return now_; }

  void pass() {
    constexpr std::uint64_t kStepMax = 1'000'000'000;
    const std::uint64_t step = random_.skewed(100, 14) << std::min<std::uint32_t>(idle_++ / 32, 20);
    now_ += Time(static_cast<Time::rep>(std::min(step, kStepMax)));
  }
  void skip(Time time) { now_ += time; }
  // Something has happened.
  void stir() { idle_ = 0; }

 private:
  Random random_;
  Time now_{0};
  std::uint32_t idle_ = 0;
};

}  // namespace terrace::sim
