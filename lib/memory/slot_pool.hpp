// The slots of one arena: which are free, which are given out, and the generation of each.
//
// A slot is a number; where its bytes lie is the tier's business. Giving back what is not given out
// is a programmer's error and ends the process. At every instant free + used + quarantined ==
// capacity.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace terrace::internal {

class SlotPool {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  explicit SlotPool(std::uint32_t capacity = 0);

  // Returns: a slot, or kNone where none is free.
  std::uint32_t acquire() noexcept;
  void release(std::uint32_t slot) noexcept;
  // Never given out again: its medium is suspect.
  void quarantine(std::uint32_t slot) noexcept;

  bool is_used(std::uint32_t slot) const noexcept { return state_[slot] == State::used; }
  std::uint32_t generation(std::uint32_t slot) const noexcept { return generation_[slot]; }
  std::uint32_t capacity() const noexcept { return static_cast<std::uint32_t>(state_.size()); }
  std::uint32_t free() const noexcept { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t quarantined() const noexcept { return quarantined_; }
  std::uint32_t used() const noexcept { return capacity() - free() - quarantined_; }

  // Marks slots as used in one pass, then builds the free list. For recovery, before the first
  // acquire().
  template <class IsUsed>
  void adopt(const IsUsed& is_used);

 private:
  enum class State : std::uint8_t { free, used, quarantined };
  std::vector<std::uint32_t> free_;  // last in, first out: warm in the CPU's caches
  std::vector<std::uint32_t> generation_;
  std::vector<State> state_;
  std::uint32_t quarantined_ = 0;
};

template <class IsUsed>
void SlotPool::adopt(const IsUsed& is_used) {
  free_.clear();
  for (std::uint32_t slot = capacity(); slot-- > 0;) {
    state_[slot] = is_used(slot) ? State::used : State::free;
    if (state_[slot] == State::free) free_.push_back(slot);
  }
}

}  // namespace terrace::internal
