// The last events, by sequence number. A slow reader is overtaken and can tell; it never holds
// anyone up.
// Thread rule: one caller at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "base/prefetch.hpp"
#include "terrace/events.hpp"

namespace terrace::internal {

class EventRing {
 public:
  // REQUIRES: capacity is a power of two.
  EventRing(std::uint32_t capacity, std::uint64_t incarnation)
      : entries_(capacity), incarnation_(incarnation) {
    TERRACE_ASSERT(std::has_single_bit(capacity), capacity);
  }

  // What the ring counts itself, sequence and incarnation, is not read.
  void push(const Event& event) noexcept {
    // Written once in thousands of events, so in no cache by then.
    prefetch_line(&entries_[place_of(next_ + kAhead)]);
    // Field by field: a whole one would be put together on the stack, and read back from there in pieces
    // that are wider than those written, for which the processor waits.
    Entry& entry = entries_[place_of(next_++)];
    entry.key = event.key;
    entry.parent = event.parent;
    entry.time_ns = event.time_ns;
    entry.depth = event.depth;
    entry.place = event.place;
    entry.from = event.from;
    entry.to = event.to;
  }

  std::size_t read(std::uint64_t from, std::span<Event> out) const noexcept {
    const std::uint64_t oldest = next_ > entries_.size() ? next_ - entries_.size() : 0;
    std::size_t count = 0;
    for (std::uint64_t at = std::max(from, oldest); at < next_ && count < out.size(); ++at) {
      const Entry& it = entries_[place_of(at)];
      out[count++] = {.sequence = at,
                      .incarnation = incarnation_,
                      .time_ns = it.time_ns,
                      .place = it.place,
                      .from = it.from,
                      .to = it.to,
                      .depth = it.depth,
                      .key = it.key,
                      .parent = it.parent};
    }
    return count;
  }

  std::uint64_t incarnation() const noexcept { return incarnation_; }

 private:
  static constexpr std::uint64_t kAhead = 6;

  // Three quarters of a cache line: a block's way through the places writes several.
  struct Entry {
    BlockKey key;
    BlockKey parent;
    std::int64_t time_ns = 0;
    std::uint32_t depth = 0;
    PlaceId place = 0;
    BlockState from = BlockState::absent;
    BlockState to = BlockState::absent;
  };
  static_assert(sizeof(Entry) == 48);

  std::size_t place_of(std::uint64_t sequence) const noexcept {
    return sequence & (entries_.size() - 1);
  }

  std::vector<Entry> entries_;
  std::uint64_t next_ = 0;
  std::uint64_t incarnation_;
};

}  // namespace terrace::internal
