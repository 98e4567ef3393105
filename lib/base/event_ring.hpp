// The last events, by sequence number. A slow reader is overtaken and can tell; it never holds
// anyone up.
// Thread rule: one caller at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/events.hpp"

namespace terrace::internal {

class EventRing {
 public:
  EventRing(std::uint32_t capacity, std::uint64_t incarnation)
      : events_(capacity), incarnation_(incarnation) {}

  void push(Event event) noexcept {
    event.sequence = next_;
    event.incarnation = incarnation_;
    events_[next_ % events_.size()] = event;
    ++next_;
  }

  std::size_t read(std::uint64_t from, std::span<Event> out) const noexcept {
    const std::uint64_t oldest = next_ > events_.size() ? next_ - events_.size() : 0;
    std::size_t count = 0;
    for (std::uint64_t at = std::max(from, oldest); at < next_ && count < out.size(); ++at) {
      out[count++] = events_[at % events_.size()];
    }
    return count;
  }

  std::uint64_t incarnation() const noexcept { return incarnation_; }

 private:
  std::vector<Event> events_;
  std::uint64_t next_ = 0;
  std::uint64_t incarnation_;
};

}  // namespace terrace::internal
