// A doubly linked list of small numbers, each in it at most once: order without allocation. Storage
// is two arrays sized once; several lists over the same numbers are several IdLists.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>

#include "base/assert.hpp"
#include "base/prefetch.hpp"
#include "io/huge_vector.hpp"

namespace terrace::internal {

class IdList {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  explicit IdList(std::uint32_t capacity = 0) : links_(capacity, Link{kOut, kOut}) {}

  bool contains(std::uint32_t id) const noexcept { return links_[id].next != kOut; }
  std::uint32_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::uint32_t front() const noexcept { return front_; }
  // Asks for the memory of the one after: whoever walks here goes there soon.
  std::uint32_t next(std::uint32_t id) const noexcept {
    const std::uint32_t next = links_[id].next;
    if (next < links_.size()) prefetch_line(&links_[next]);
    return next;
  }

  // REQUIRES: it is not in the list. Not checked, as that would wait for memory that is in no cache,
  // and is written only.
  void push_back(std::uint32_t id) noexcept {
    TERRACE_ASSERT(id < links_.size(), id);
    links_[id] = Link{back_, kNone};
    (back_ == kNone ? front_ : links_[back_].next) = id;
    back_ = id;
    ++size_;
  }

  // As push_back(). REQUIRES: contains(before).
  void insert_before(std::uint32_t id, std::uint32_t before) noexcept {
    TERRACE_ASSERT(id < links_.size() && contains(before), id);
    const std::uint32_t previous = links_[before].previous;
    links_[id] = Link{previous, before};
    (previous == kNone ? front_ : links_[previous].next) = id;
    links_[before].previous = id;
    ++size_;
  }

  void remove(std::uint32_t id) noexcept {
    TERRACE_ASSERT(id < links_.size() && contains(id), id);
    const Link link = links_[id];
    (link.previous == kNone ? front_ : links_[link.previous].next) = link.next;
    (link.next == kNone ? back_ : links_[link.next].previous) = link.previous;
    links_[id] = Link{kOut, kOut};
    --size_;
  }

 private:
  static constexpr std::uint32_t kOut = 0xfffffffeu;
  struct Link {
    std::uint32_t previous;
    std::uint32_t next;
  };
  HugeVector<Link> links_;
  std::uint32_t front_ = kNone;
  std::uint32_t back_ = kNone;
  std::uint32_t size_ = 0;
};

}  // namespace terrace::internal
