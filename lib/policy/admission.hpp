// Which blocks are worth a write to NVMe, where writes are limited: endurance.
//
// A token bucket holds what may be written. While it is well filled, everything is; as it empties,
// a block must have been asked for more often to get in, so that what is least likely to be read
// again goes without first. How often is counted in a small sketch over keys, of blocks that are
// gone, too: a prompt that comes a second time says more than anything a block knows of itself.
// Source of the idea: TinyLFU (Einziger, Friedman, Manes, 2017); this is its admission half.
// Must never do I/O or read clocks. Called by: Mover.
// Thread rule: one caller at a time (the cache's lock is held).
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/key.hpp"

namespace terrace::internal {

class Admission {
 public:
  // bytes_per_day 0: no limit, and nothing is counted. `blocks`: how many are worth remembering.
  Admission(std::uint64_t bytes_per_day, std::uint32_t blocks);

  bool limited() const noexcept { return bucket_bytes_ > 0; }
  // A request has asked for these.
  void saw(std::span<const BlockKey> keys) noexcept;
  // Returns: whether the block may be written now; its bytes are then spent.
  bool admit(const BlockKey& key, std::uint64_t bytes, std::chrono::nanoseconds now) noexcept;
  // From now on as if the bucket had just been emptied, by an earlier process perhaps.
  void empty(std::chrono::nanoseconds now) noexcept {
    left_bytes_ = 0;
    refilled_ = now;
  }
  // It was not written after all.
  void refund(std::uint64_t bytes) noexcept { left_bytes_ += static_cast<double>(bytes); }

 private:
  std::uint8_t& counter(std::uint64_t hash) noexcept {
    return counters_[hash & (counters_.size() - 1)];
  }
  std::uint8_t sightings(const BlockKey& key) noexcept;
  void age() noexcept;
  void refill(std::chrono::nanoseconds now) noexcept;

  double bucket_bytes_;      // its size: an hour's share
  double bytes_per_second_;  // so that a full bucket and a day's flow make the day's budget
  double left_bytes_;
  std::chrono::nanoseconds refilled_{-1};  // negative: never yet
  std::vector<std::uint8_t> counters_;     // size is a power of two
  std::uint64_t counted_ = 0;              // since the last aging
};

}  // namespace terrace::internal
