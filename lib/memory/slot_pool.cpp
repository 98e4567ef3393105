#include "memory/slot_pool.hpp"

#include "base/assert.hpp"

namespace terrace::internal {

SlotPool::SlotPool(std::uint32_t capacity)
    : generation_(capacity, 0), state_(capacity, State::free) {
  free_.reserve(capacity);
  for (std::uint32_t slot = capacity; slot-- > 0;) free_.push_back(slot);
}

std::uint32_t SlotPool::acquire() noexcept {
  if (free_.empty()) return kNone;
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  TERRACE_ASSERT(state_[slot] == State::free, slot);
  state_[slot] = State::used;
  ++generation_[slot];
  return slot;
}

void SlotPool::release(std::uint32_t slot) noexcept {
  TERRACE_ASSERT(slot < capacity() && state_[slot] == State::used, slot);
  state_[slot] = State::free;
  free_.push_back(slot);
}

void SlotPool::quarantine(std::uint32_t slot) noexcept {
  TERRACE_ASSERT(slot < capacity() && state_[slot] == State::used, slot);
  state_[slot] = State::quarantined;
  ++quarantined_;
}

}  // namespace terrace::internal
