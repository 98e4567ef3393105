// See admission.hpp.
#include "policy/admission.hpp"

#include <algorithm>
#include <bit>

namespace terrace::internal {
namespace {

constexpr double kHours = 24;
constexpr double kHourSeconds = 3600;
constexpr std::uint8_t kCounterMax = 15;
constexpr std::size_t kCountersMin = 1024;
// Old fame fades: after so many sightings a counter all counters are halved.
constexpr std::uint64_t kSightingsPerCounter = 4;

// How often a block must have been asked for, by how full the bucket is. The request that computed
// it asked once, if not for the tokens that it generated.
std::uint8_t sightings_needed(double filled) noexcept {
  if (filled >= 0.5) return 0;
  return filled >= 0.25 ? 2 : 3;
}

}  // namespace

Admission::Admission(std::uint64_t bytes_per_day, std::uint32_t blocks)
    : bucket_bytes_(static_cast<double>(bytes_per_day) / kHours),
      bytes_per_second_(bucket_bytes_ * (kHours - 1) / (kHours * kHourSeconds)),
      left_bytes_(bucket_bytes_) {
  if (limited()) counters_.resize(std::bit_ceil(std::max<std::size_t>(blocks, kCountersMin)) * 2);
}

void Admission::saw(std::span<const BlockKey> keys) noexcept {
  if (!limited()) return;
  for (const BlockKey& key : keys) {
    for (const std::uint64_t half : {key.low, key.high}) {
      std::uint8_t& count = counter(half);
      count = std::min<std::uint8_t>(static_cast<std::uint8_t>(count + 1), kCounterMax);
    }
  }
  counted_ += keys.size();
  if (counted_ > kSightingsPerCounter * counters_.size()) age();
}

bool Admission::admit(const BlockKey& key, std::uint64_t bytes,
                      std::chrono::nanoseconds now) noexcept {
  if (!limited()) return true;
  refill(now);
  const auto cost = static_cast<double>(bytes);
  if (cost > left_bytes_ || sightings(key) < sightings_needed(left_bytes_ / bucket_bytes_))
    return false;
  left_bytes_ -= cost;
  return true;
}

// Two keys may share a counter, seldom two: the lower one is nearer to the truth.
std::uint8_t Admission::sightings(const BlockKey& key) noexcept {
  return std::min(counter(key.low), counter(key.high));
}

void Admission::age() noexcept {
  for (std::uint8_t& count : counters_) count = static_cast<std::uint8_t>(count / 2);
  counted_ = 0;
}

void Admission::refill(std::chrono::nanoseconds now) noexcept {
  if (refilled_.count() >= 0) {
    const double seconds = std::chrono::duration<double>(now - refilled_).count();
    left_bytes_ = std::min(bucket_bytes_, left_bytes_ + seconds * bytes_per_second_);
  }
  refilled_ = now;
}

}  // namespace terrace::internal
