// One run of the simulator, completely: the same configuration is the same run.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>

#include "sim/faults.hpp"

namespace terrace::sim {

// A rule of a seam that is broken on purpose, to see whether the simulator notices.
enum class Canary : std::uint8_t {
  none,
  deaf_wait,         // the copy engine accepts wait(), and does not wait
  late_dma,          // the drive writes into a buffer once more after it has reported the read
  forgotten_write,   // the drive reports a write that it has not done
  forgetful_policy,  // the policy loses sight of a block that could leave
};

inline constexpr const char* kCanaryNames[] = {"none", "deaf_wait", "late_dma", "forgotten_write",
                                               "forgetful_policy"};
constexpr const char* to_string(Canary canary) {
  return kCanaryNames[static_cast<std::size_t>(canary)];
}

struct Config {
  std::uint64_t seed = 0;
  std::uint32_t operations = 2000;
  FaultMask faults = kEveryFault;
  Canary canary = Canary::none;
  bool trace = false;  // prints what happens
};

}  // namespace terrace::sim
