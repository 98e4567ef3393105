// What several benchmarks measure with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "terrace/units.hpp"

namespace terrace::bench {

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// What an engine does between two requests: reads more than the caches hold, its weights for example.
inline void do_other_work() {
  constexpr std::size_t kWeightsBytes = 256 * MiB;
  static const std::vector<std::uint64_t> weights(kWeightsBytes / sizeof(std::uint64_t), 1);
  const std::uint64_t sum = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  if (sum != weights.size()) throw std::logic_error("nobody has changed them");
}

}  // namespace terrace::bench
