#include "engine/sampler.hpp"

#include <limits>

namespace terrace::engine {

std::uint32_t argmax(std::span<const float> logits) noexcept {
  std::uint32_t best = 0;
  float most = -std::numeric_limits<float>::infinity();
  for (std::uint32_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > most) {
      most = logits[id];
      best = id;
    }
  }
  return best;
}

}  // namespace terrace::engine
