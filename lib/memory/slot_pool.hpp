// The slots of one arena: which are free, which are given out, and the generation of each.
//
// A slot is a number; where its bytes lie is the tier's business. Slots may be cut into ranges, one
// a drive, so that one can be preferred, and taken out of service. Giving back what is not given
// out is a programmer's error and ends the process. At every instant free + used + quarantined ==
// capacity.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/prefetch.hpp"
#include "io/huge_vector.hpp"

namespace terrace::internal {

class SlotPool {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  explicit SlotPool(std::uint32_t capacity = 0) : SlotPool(std::span(&capacity, 1)) {}
  // Slots [0, sizes[0]) are range 0, the next sizes[1] range 1, and so on. REQUIRES: at least one.
  explicit SlotPool(std::span<const std::uint32_t> sizes);

  // Returns: a slot, of the preferred range if it has one; kNone where none is free.
  std::uint32_t acquire(std::uint32_t range = 0) noexcept;
  void release(std::uint32_t slot) noexcept;
  // Never given out again: its medium is suspect.
  void quarantine(std::uint32_t slot) noexcept;
  // Nothing of it is given out from here on: free slots are quarantined now, used ones when they
  // come back.
  void take_out_of_service(std::uint32_t range) noexcept;

  bool is_used(std::uint32_t slot) const noexcept { return slots_[slot].state == State::used; }
  std::uint32_t range_of(std::uint32_t slot) const noexcept;
  std::uint32_t generation(std::uint32_t slot) const noexcept { return slots_[slot].generation; }
  // Asks for the memory that acquire() and release() of this slot touch.
  void prefetch(std::uint32_t slot) const noexcept { prefetch_line(&slots_[slot]); }
  std::uint32_t capacity() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
  std::uint32_t free() const noexcept { return free_; }
  std::uint32_t quarantined() const noexcept { return quarantined_; }
  std::uint32_t used() const noexcept { return capacity() - free() - quarantined_; }

  // Marks slots as used in one pass, then builds the free lists. For recovery, before the first
  // acquire().
  template <class IsUsed>
  void adopt(const IsUsed& is_used);

 private:
  enum class State : std::uint8_t { free, used, quarantined };
  struct Slot {
    State state : 2 = State::free;
    std::uint32_t generation : 30 = 0;
  };
  static_assert(sizeof(Slot) == 4);
  struct Range {
    std::uint32_t end = 0;
    bool in_service = true;
    std::vector<std::uint32_t> free;  // last in, first out: warm in the CPU's caches
  };

  void add_free(std::uint32_t slot) noexcept {
    ranges_[range_of(slot)].free.push_back(slot);
    ++free_;
  }

  std::vector<Range> ranges_;
  HugeVector<Slot> slots_;
  std::uint32_t free_ = 0;
  std::uint32_t quarantined_ = 0;
};

template <class IsUsed>
void SlotPool::adopt(const IsUsed& is_used) {
  for (Range& range : ranges_) range.free.clear();
  free_ = 0;
  for (std::uint32_t slot = capacity(); slot-- > 0;) {
    slots_[slot].state = is_used(slot) ? State::used : State::free;
    if (slots_[slot].state == State::free) add_free(slot);
  }
}

}  // namespace terrace::internal
