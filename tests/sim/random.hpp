// Luck, from a seed: the same on every machine, compiler and standard library.
//
// Each purpose has a stream of its own, so that a fault that is switched off does not change what
// else happens: that is what makes shrinking work.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace terrace::sim {

class Random {
 public:
  Random(std::uint64_t seed, std::string_view purpose) : state_(seed * 0x9e3779b97f4a7c15) {
    for (const char letter : purpose) {
      state_ ^= static_cast<unsigned char>(letter);
      next();
    }
  }

  std::uint64_t next() {  // SplitMix64
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(next() % bound); }
  std::uint32_t between(std::uint32_t least, std::uint32_t most) {
    return least + below(most - least + 1);
  }
  bool one_in(std::uint32_t count) { return below(count) == 0; }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return unit() < probability; }
  // Small values as likely as large ones: from `least` up to almost `least` << `doublings`.
  std::uint64_t skewed(std::uint64_t least, std::uint32_t doublings) {
    const std::uint64_t base = least << below(doublings);
    return base + next() % base;
  }

 private:
  std::uint64_t state_;
};

}  // namespace terrace::sim
