// Rotary position embeddings: the angle of every pair of dimensions at every position.
//
// Half rotation, as in Hugging Face: dimension i of a head is paired with i + head_dim / 2. Called
// by the forward pass.
// Thread rule: const use from any thread.
#pragma once

#include <span>
#include <vector>

#include "engine/config.hpp"

namespace terrace::engine {

class Rope {
 public:
  explicit Rope(const ModelConfig& config);

  // Radians a position turns pair i, [head_dim / 2]; scaling is applied.
  std::span<const double> frequencies() const noexcept { return frequencies_; }

  // The cosines and sines of `position`, [head_dim / 2] each. Computed in double and rounded once:
  // at position 100,000 a float32 angle would be off by 0.004.
  void angles(std::uint32_t position, float* cosines, float* sines) const noexcept;

 private:
  std::vector<double> frequencies_;
};

}  // namespace terrace::engine
