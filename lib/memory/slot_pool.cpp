#include "memory/slot_pool.hpp"

#include <numeric>

#include "base/assert.hpp"

namespace terrace::internal {

SlotPool::SlotPool(std::span<const std::uint32_t> sizes)
    : generation_(std::accumulate(sizes.begin(), sizes.end(), 0U), 0),
      state_(generation_.size(), State::free) {
  std::uint32_t end = 0;
  for (const std::uint32_t size : sizes) {
    Range& range = ranges_.emplace_back();
    range.end = end += size;
    range.free.reserve(size);
  }
  for (std::uint32_t slot = capacity(); slot-- > 0;) add_free(slot);
}

std::uint32_t SlotPool::acquire(std::uint32_t range) noexcept {
  if (free_ == 0) return kNone;
  while (ranges_[range].free.empty())
    range = (range + 1) % static_cast<std::uint32_t>(ranges_.size());
  const std::uint32_t slot = ranges_[range].free.back();
  ranges_[range].free.pop_back();
  --free_;
  TERRACE_ASSERT(state_[slot] == State::free, slot);
  state_[slot] = State::used;
  ++generation_[slot];
  return slot;
}

void SlotPool::release(std::uint32_t slot) noexcept {
  TERRACE_ASSERT(slot < capacity() && state_[slot] == State::used, slot);
  if (!ranges_[range_of(slot)].in_service) return quarantine(slot);
  state_[slot] = State::free;
  add_free(slot);
}

void SlotPool::quarantine(std::uint32_t slot) noexcept {
  TERRACE_ASSERT(slot < capacity() && state_[slot] == State::used, slot);
  state_[slot] = State::quarantined;
  ++quarantined_;
}

void SlotPool::take_out_of_service(std::uint32_t range) noexcept {
  ranges_[range].in_service = false;
  for (const std::uint32_t slot : ranges_[range].free) state_[slot] = State::quarantined;
  const auto count = static_cast<std::uint32_t>(ranges_[range].free.size());
  ranges_[range].free.clear();
  free_ -= count;
  quarantined_ += count;
}

std::uint32_t SlotPool::range_of(std::uint32_t slot) const noexcept {
  std::uint32_t range = 0;
  while (slot >= ranges_[range].end) ++range;  // a handful of drives at most
  return range;
}

}  // namespace terrace::internal
