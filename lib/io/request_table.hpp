// The requests a device has in flight, and what a completion of the kernel means for them.
//
// A completion is matched by slot and generation: a late, duplicate or foreign one finishes nothing
// (invariant: only an operation's own, full-length completion finishes it). Knows no kernel
// interface, so that tests can send it any completion. Must never allocate after construction. Used
// by UringDevice.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "io/io_vector.hpp"

namespace terrace::internal {

class RequestTable {
 public:
  using Tag = std::uint64_t;  // generation and slot: what travels through the kernel

  enum class Outcome : std::uint8_t {
    foreign,  // belongs to no request in flight; ignore it
    again,    // part of the request is missing: send rest(tag), under the tag as it is now
    done,     // the result is written, the slot free
  };

  explicit RequestTable(std::uint32_t depth);

  bool full() const noexcept { return free_.empty(); }
  std::uint32_t in_flight() const noexcept {
    return static_cast<std::uint32_t>(slots_.size() - free_.size());
  }

  // Takes a slot. `os_error` other than 0: the request is refused, and its first completion says
  // so. REQUIRES: !full().
  Tag add(const IoRequest& request, int os_error = 0);
  // `transferred`: bytes, or a negative errno, as in a completion queue entry. Each time a request is sent
  // it has another tag, so that one completion counts once.
  Outcome complete(Tag& tag, std::int32_t transferred, IoResult& result);
  // What is still to be transferred; stays in place until the request is done. REQUIRES: add() or
  // `again` gave `tag`.
  const IoVector& rest(Tag tag) const;
  bool refused(Tag tag) const;

 private:
  struct Slot {
    IoVector rest;
    std::uint64_t user_data = 0;
    std::uint32_t generation = 1;
    std::int32_t os_error = 0;
    std::uint8_t retries = 0;
    bool used = false;
  };

  static int verdict(Slot& slot, std::int32_t transferred);

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace terrace::internal
