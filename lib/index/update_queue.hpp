// Updates of the slot index on their way from the pump to the index's worker: a bounded ring of
// entries that is allocated once. push() never waits; the mutex is held for a copy of one entry.
// Thread rule: one pushing thread, one worker.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "terrace/units.hpp"

namespace terrace::internal {

class UpdateQueue {
 public:
  struct Update {
    std::uint32_t slot;
    std::span<const std::byte> header;  // empty: forget the slot
  };

  explicit UpdateQueue(std::uint32_t entry_bytes)
      : entry_bytes_(entry_bytes),
        updates_(std::clamp<std::size_t>(4 * MiB / entry_bytes, 64, 2048)),
        bytes_(updates_.size() * entry_bytes) {}

  // Returns: false where the ring is full.
  bool push(std::uint32_t slot, std::span<const std::byte> header) {
    TERRACE_ASSERT(header.size() <= entry_bytes_, header.size());
    {
      const std::lock_guard lock(mutex_);
      if (count_ == updates_.size()) return false;
      const std::size_t back = (front_ + count_) % updates_.size();
      updates_[back] = {slot, static_cast<std::uint32_t>(header.size())};
      if (!header.empty()) std::memcpy(&bytes_[back * entry_bytes_], header.data(), header.size());
      ++count_;
    }
    wake_.notify_one();
    return true;
  }

  // The worker only. The front moves only in pop(), so what at() returns stays in place.
  // Returns: how many entries stand at the front, at most `most`; 0 after stop(), once drained.
  std::size_t wait(std::size_t most) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return count_ > 0 || stopped_; });
    return std::min(count_, most);
  }

  // The worker only: the nth update from the front, valid until pop().
  Update at(std::size_t nth) const {
    const std::size_t place = (front_ + nth) % updates_.size();
    const Place& update = updates_[place];
    return {update.slot, std::span(bytes_).subspan(place * entry_bytes_, update.bytes)};
  }

  void pop(std::size_t count) {
    const std::lock_guard lock(mutex_);
    front_ = (front_ + count) % updates_.size();
    count_ -= count;
    if (count_ == 0) drained_.notify_all();
  }

  void wait_drained() {
    std::unique_lock lock(mutex_);
    drained_.wait(lock, [this] { return count_ == 0; });
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    wake_.notify_one();
  }

 private:
  struct Place {
    std::uint32_t slot = 0;
    std::uint32_t bytes = 0;
  };

  const std::uint32_t entry_bytes_;
  std::vector<Place> updates_;
  std::vector<std::byte> bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable drained_;
  std::size_t front_ = 0;
  std::size_t count_ = 0;
  bool stopped_ = false;
};

}  // namespace terrace::internal
