// What the event stream says there is, kept beside the cache: the oracle of lookups, of capacity and
// of what must be warm after a restart.
//
// Thread rule: one thread.
#pragma once

#include <array>
#include <vector>

#include "sim/universe.hpp"
#include "sim/world.hpp"
#include "terrace/cache.hpp"

namespace terrace::sim {

// By number of block.
using BlockSet = std::vector<bool>;

class Mirror {
 public:
  Mirror(World& world, const Universe& universe, std::uint64_t incarnation);

  // Takes the events since the last call. Reports gaps, strangers and illegal transitions.
  void read(const Cache& cache);

  // False where keys are cut short: the functions below know nothing then.
  bool knows() const { return !universe_.has_collisions(); }
  BlockState state(BlockNumber block, PlaceId place) const { return states_[block][place]; }
  std::uint32_t count(PlaceId place, BlockState state) const;
  // How often a landing of this block has failed, or a copy of it proved wrong.
  std::uint32_t failures(BlockNumber block) const { return failures_[block]; }
  // How many copies became resident, and how many left without being wrong.
  std::uint64_t arrivals(PlaceId place) const { return arrivals_[place]; }
  std::uint64_t departures(PlaceId place) const { return departures_[place]; }
  // Every copy that takes a slot or is held.
  std::uint32_t present(PlaceId place) const;
  BlockSet residents(PlaceId place) const;

  // What was on NVMe when the process died, if it has.
  BlockSet survivors() const { return survivors_ ? *survivors_ : residents(kNvme0); }
  // Blocks that were on NVMe when it was last synced, or had come there before `until`, and have not
  // left since.
  BlockSet durable(Clock::Time until = Clock::Time{0}) const;
  void set_durable(BlockSet durable) { durable_ = std::move(durable); }
  // Blocks on NVMe of which only the header was seen since a crash: the rest may be torn.
  const BlockSet& suspect() const { return suspect_; }
  void set_suspect(BlockSet suspect) { suspect_ = std::move(suspect); }
  // Over all events: two equal runs have equal digests.
  std::uint64_t digest() const { return digest_; }

 private:
  void take(const Event& event);
  void follow(const Event& event);

  World& world_;
  const Universe& universe_;
  const std::uint64_t incarnation_;
  std::uint64_t next_ = 0;
  std::int64_t time_ns_ = 0;
  std::vector<std::array<BlockState, kPlaceCount>> states_;
  std::vector<std::uint32_t> failures_;
  std::array<std::uint64_t, kPlaceCount> arrivals_{};
  std::array<std::uint64_t, kPlaceCount> departures_{};
  std::vector<Clock::Time> on_nvme_since_;
  BlockSet durable_;
  BlockSet suspect_;
  std::optional<BlockSet> survivors_;
  std::uint64_t digest_ = 0;
};

}  // namespace terrace::sim
