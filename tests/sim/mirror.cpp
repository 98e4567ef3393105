#include "sim/mirror.hpp"

#include <algorithm>

namespace terrace::sim {
namespace {

// The drawing in lib/move/block_state.hpp once more, on purpose: an oracle does not ask the accused.
bool is_legal(BlockState from, BlockState to) {
  using enum BlockState;
  return (from == absent && (to == landing || to == resident)) ||
         (from == landing && (to == resident || to == quarantined)) ||
         (from == resident && (to == absent || to == quarantined)) ||
         (from == quarantined && to == absent);
}

}  // namespace

Mirror::Mirror(World& world, const Universe& universe, std::uint64_t incarnation)
    : world_(world),
      universe_(universe),
      incarnation_(incarnation),
      states_(universe.block_count()),
      failures_(universe.block_count(), 0),
      on_nvme_since_(universe.block_count()),
      durable_(universe.block_count(), false),
      suspect_(universe.block_count(), false) {}

void Mirror::read(const Cache& cache) {
  std::array<Event, 256> events;
  for (;;) {
    const std::size_t count = cache.read_events(next_, events);
    for (const Event& event : std::span(events).first(count)) take(event);
    if (count < events.size()) return;
  }
}

void Mirror::take(const Event& event) {
  world_.check(event.sequence == next_, "I27: a gap in the event stream");
  world_.check(event.incarnation == incarnation_, "I27: an event of another incarnation");
  world_.check(event.time_ns >= time_ns_, "I27: an event from the past");
  world_.check(event.place < kPlaceCount && is_legal(event.from, event.to),
               "I27: an illegal transition");
  next_ = event.sequence + 1;
  time_ns_ = event.time_ns;
  for (const std::uint64_t word :
       {event.key.low, static_cast<std::uint64_t>(event.time_ns), std::uint64_t{event.place},
        static_cast<std::uint64_t>(event.to)})
    digest_ = (digest_ ^ word) * 0x9e3779b97f4a7c15 + (digest_ >> 32);
  if (event.place >= kPlaceCount) return;
  if (event.to == BlockState::resident) ++arrivals_[event.place];
  if (event.from == BlockState::resident && event.to == BlockState::absent)
    ++departures_[event.place];
  if (knows()) follow(event);
}

void Mirror::follow(const Event& event) {
  const auto block = universe_.find(event.key, event.parent, event.depth);
  if (world_.config().trace) {
    world_.note("  block " + std::to_string(block.value_or(~0U)) + " at " +
                std::to_string(event.time_ns) + ": " + terrace::to_string(event.place) + " " +
                terrace::to_string(event.from) + " -> " + terrace::to_string(event.to));
  }
  world_.check(block.has_value(), "I10: an event of a block that nobody knows");
  if (!block) return;
  world_.check(universe_.block(*block).committed, "I10: an event of a block that nobody committed");
  BlockState& state = states_[*block][event.place];
  world_.check(state == event.from, "I27: a transition from a state that the block was not in");
  const bool is_from_beyond = world_.crashed() && event.time_ns >= world_.crash_time().count();
  if (is_from_beyond && !survivors_) survivors_ = residents(kNvme0);
  state = event.to;
  if (event.to == BlockState::quarantined) ++failures_[*block];
  // Time stands still within a round: at the very time of the crash, only what leaves counts.
  const bool is_too_late = is_from_beyond && event.time_ns > world_.crash_time().count();
  if (event.place != kNvme0 || is_too_late) return;
  if (event.from != BlockState::absent) suspect_[*block] = false;
  if (event.to == BlockState::resident) {
    on_nvme_since_[*block] = Clock::Time(event.time_ns);
    return;
  }
  durable_[*block] = false;
  if (survivors_) (*survivors_)[*block] = false;
}

BlockSet Mirror::durable(Clock::Time until) const {
  BlockSet set = survivors();
  for (std::size_t i = 0; i < set.size(); ++i)
    set[i] = set[i] && (durable_[i] || on_nvme_since_[i] < until);
  return set;
}

std::uint32_t Mirror::count(PlaceId place, BlockState state) const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(states_, [&](const auto& places) { return places[place] == state; }));
}

std::uint32_t Mirror::present(PlaceId place) const {
  return static_cast<std::uint32_t>(states_.size()) - count(place, BlockState::absent);
}

BlockSet Mirror::residents(PlaceId place) const {
  BlockSet set(states_.size());
  for (std::size_t i = 0; i < states_.size(); ++i)
    set[i] = states_[i][place] == BlockState::resident;
  return set;
}

}  // namespace terrace::sim
