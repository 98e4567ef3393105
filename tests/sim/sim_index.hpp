// A slot index in memory, with the weaknesses of a database: a queue that its worker drains in its
// own time and that dies with the process, a log whose tail a power cut takes, and entries that are
// not what they were.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "index/slot_index.hpp"
#include "sim/world.hpp"

namespace terrace::sim {

struct IndexUpdate {
  enum class Kind : std::uint8_t { put, erase, complete, sync };
  Kind kind = Kind::put;
  std::uint32_t slot = 0;
  std::vector<std::byte> header{};
};

// What survives of an index.
class IndexImage {
 public:
  using Entries = std::map<std::uint32_t, std::vector<std::byte>>;

  const Entries& entries() const { return now_.entries; }
  bool complete() const { return now_.complete; }
  void apply(const IndexUpdate& update);
  void flush();
  bool all_durable() const { return unflushed_.empty(); }
  void clear();
  // The updates since the last flush are a log: some of its tail is gone.
  void lose_power(Random& random);
  // Entries that are there, and wrong. REQUIRES: !entries().empty(), has_history().
  bool has_history() const { return !replaced_.empty(); }
  void make_stale(Random& random);
  void swap_two(Random& random);
  void damage(Random& random);

 private:
  struct State {
    Entries entries;
    bool complete = false;
    void apply(const IndexUpdate& update);
  };
  std::vector<std::byte>& any_entry(Random& random);

  State now_;
  State durable_;
  std::vector<IndexUpdate> unflushed_;
  Entries replaced_;  // what was in a slot before
};

class SimIndex;

// As Drive.
struct IndexFolder {
  std::shared_ptr<IndexImage> image = std::make_shared<IndexImage>();
  SimIndex* user = nullptr;
  Clock::Time durable_until{0};
};

class SimIndex final : public internal::SlotIndex {
 public:
  // REQUIRES: nobody uses `folder`, which outlives the index.
  SimIndex(World& world, IndexFolder& folder);
  ~SimIndex() override;

  bool usable() const noexcept override { return image_->complete() && !given_up_; }
  Result<void> load(const Visitor& visit) override;
  bool put(std::uint32_t slot, std::span<const std::byte> header) override;
  bool erase(std::uint32_t slot) override;
  void sync_soon() override;
  Result<void> mark_complete() override;
  std::uint64_t failures() const noexcept override { return failures_; }
  Result<void> flush() override;

  // What the worker has had time for.
  void work();
  std::size_t queued() const { return queue_.size(); }

 private:
  struct Queued {
    Clock::Time pushed;
    Clock::Time due;  // when the worker has written it
    IndexUpdate update;
  };
  bool push(IndexUpdate update);
  void enqueue(IndexUpdate update);
  void drain(Clock::Time until);
  void write(const Queued& queued);
  void give_up();

  World& world_;
  IndexFolder& folder_;
  const std::shared_ptr<IndexImage> image_;
  std::deque<Queued> queue_;
  std::uint32_t full_for_ = 0;  // calls
  std::uint64_t failures_ = 0;
  bool given_up_ = false;
};

}  // namespace terrace::sim
