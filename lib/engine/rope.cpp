#include "engine/rope.hpp"

#include <cmath>
#include <numbers>

namespace terrace::engine {
namespace {

// Llama 3.1's rule: wavelengths beyond the original context are stretched by `factor`, short ones
// are kept, and in between the two are blended linearly in the number of turns within the original
// context.
double llama3(double frequency, const RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double turns = scaling.original_max_positions / wavelength;
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  if (turns > scaling.high_freq_factor) return frequency;
  const double kept =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

double scaled(double frequency, const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
      return frequency;
    case RopeScaling::Kind::linear:
      return frequency / scaling.factor;
    case RopeScaling::Kind::llama3:
      return llama3(frequency, scaling);
  }
  return frequency;
}

}  // namespace

Rope::Rope(const ModelConfig& config) {
  for (std::uint32_t i = 0; i < config.head_dim / 2; ++i) {
    const double exponent = 2.0 * i / config.head_dim;
    frequencies_.push_back(scaled(std::pow(config.rope_theta, -exponent), config.rope_scaling));
  }
}

void Rope::angles(std::uint32_t position, float* cosines, float* sines) const noexcept {
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double angle = position * frequencies_[i];
    cosines[i] = static_cast<float>(std::cos(angle));
    sines[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace terrace::engine
