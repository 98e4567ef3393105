#include "memory/slot_pool.hpp"

#include <numeric>

#include "base/assert.hpp"

namespace terrace::internal {

SlotPool::SlotPool(std::span<const std::uint32_t> sizes)
    : slots_(std::accumulate(sizes.begin(), sizes.end(), 0U)) {
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
  TERRACE_ASSERT(slots_[slot].state == State::free, slot);
  slots_[slot].state = State::used;
  ++slots_[slot].generation;
  return slot;
}

void SlotPool::release(std::uint32_t slot) noexcept {
  TERRACE_ASSERT(slot < capacity() && slots_[slot].state == State::used, slot);
  if (!ranges_[range_of(slot)].in_service) return quarantine(slot);
  slots_[slot].state = State::free;
  add_free(slot);
}

void SlotPool::quarantine(std::uint32_t slot) noexcept {
  TERRACE_ASSERT(slot < capacity() && slots_[slot].state == State::used, slot);
  slots_[slot].state = State::quarantined;
  ++quarantined_;
}

void SlotPool::take_out_of_service(std::uint32_t range) noexcept {
  ranges_[range].in_service = false;
  for (const std::uint32_t slot : ranges_[range].free) slots_[slot].state = State::quarantined;
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
