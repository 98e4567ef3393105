// What a life leaves behind for whoever examines its directory: which chains it began, and which
// copies were resident on NVMe when it was killed. It lies in memory that parent and child share,
// so a kill between any two instructions loses nothing of it.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "cache/harness.hpp"

namespace terrace::test {

enum class Phase : std::uint32_t { unborn, opening, serving, waiting, closed };
enum class Standing : std::uint32_t {
  absent,
  recovered,  // from an earlier life, which alone knows whether it was complete
  resident,
  flushed,
};

struct KeyOrder {
  bool operator()(const BlockKey& a, const BlockKey& b) const {
    return std::pair(a.high, a.low) < std::pair(b.high, b.low);
  }
};

// What an examination found, in blocks that can be reached from the start of their chain.
struct Findings {
  std::uint64_t resident = 0;  // before the kill
  std::uint64_t warm = 0;      // of these, hit afterwards
  std::uint64_t flushed = 0;   // likewise, of those that a flush() had spoken of
  std::uint64_t flushed_warm = 0;
  std::uint64_t corrupt = 0;  // records that did not verify

  void add(const Findings& more) {
    resident += more.resident;
    warm += more.warm;
    flushed += more.flushed;
    flushed_warm += more.flushed_warm;
    corrupt += more.corrupt;
  }
};

struct Journal {
  static constexpr std::uint32_t kBlocksMax = 8192;
  struct Copy {
    std::atomic<Standing> standing;
    BlockKey key;  // written before `standing`
  };

  // The life's.
  std::atomic<Phase> phase;
  std::atomic<std::uint32_t> chains_begun;  // chains from this one on were never committed
  std::atomic<std::uint32_t> flushes;
  std::array<Copy, kBlocksMax> copies;  // by the number that the eviction policy knows a block by

  // The survivors': what the last life that opened the directory left in it, less what was lost.
  std::array<Copy, kBlocksMax> known;
  Findings findings;
};

// A zeroed T that a child of fork() shares.
template <class T>
class Shared {
 public:
  Shared() {
    void* memory =
        ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    value_ = new (memory) T{};
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(value_, sizeof(T)); }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* value_;
};

// An eviction policy that keeps the journal. A policy is told of a departure before the slot is
// given to anybody else, so that no kill can come between the two; a reader of events is told
// later. Events say which block it was that arrived: their order is that of the arrivals.
class Witness final : public EvictionPolicy {
 public:
  Witness(std::uint32_t capacity, Journal& journal)
      : order_(make_lru_policy(capacity)), journal_(journal), stays_(capacity) {
    for (Journal::Copy& copy : journal.copies) copy.standing = Standing::absent;
    EXPECT_LE(capacity, Journal::kBlocksMax);
  }

  void inserted(PlaceId place, std::uint32_t block, std::uint32_t parent) override {
    order_->inserted(place, block, parent);
    if (place == kNvme0) arrivals_.push_back({block, ++stays_[block]});
  }
  void touched(PlaceId place, std::uint32_t block) override { order_->touched(place, block); }
  void removed(PlaceId place, std::uint32_t block) override {
    if (place == kNvme0) {
      journal_.copies[block].standing = Standing::absent;
      ++stays_[block];
    }
    order_->removed(place, block);
  }
  std::uint32_t coldest(PlaceId place) const override { return order_->coldest(place); }
  std::uint32_t next_warmer(PlaceId place, std::uint32_t block) const override {
    return order_->next_warmer(place, block);
  }

  // Names what has arrived since the last call.
  void read_events(Cache& cache) {
    std::array<Event, 256> events;
    while (const std::size_t count = cache.read_events(next_event_, events)) {
      EXPECT_EQ(events[0].sequence, next_event_) << "the ring has overtaken the journal";
      for (const Event& event : std::span(events).first(count)) {
        if (event.place == kNvme0 && event.to == BlockState::resident) arrived(event);
      }
      next_event_ = events[count - 1].sequence + 1;
    }
  }

  // The cache has said that everything committed is where it belongs.
  void flushed() {
    for (Journal::Copy& copy : journal_.copies) {
      Standing resident = Standing::resident;
      copy.standing.compare_exchange_strong(resident, Standing::flushed);
    }
  }

 private:
  struct Arrival {
    std::uint32_t block;
    std::uint32_t stay;
  };

  void arrived(const Event& event) {
    const Arrival arrival = arrivals_.front();
    arrivals_.pop_front();
    if (arrival.stay != stays_[arrival.block]) return;  // it has left again
    journal_.copies[arrival.block].key = event.key;
    journal_.copies[arrival.block].standing =
        event.from == BlockState::absent ? Standing::recovered : Standing::resident;
  }

  std::unique_ptr<EvictionPolicy> order_;
  Journal& journal_;
  std::vector<std::uint32_t> stays_;  // grows with each arrival and departure
  std::deque<Arrival> arrivals_;      // not named yet
  std::uint64_t next_event_ = 0;
};

}  // namespace terrace::test
