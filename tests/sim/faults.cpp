#include "sim/faults.hpp"

#include <cmath>

namespace terrace::sim {
namespace {

enum class Kind : std::uint8_t { delay, error, lie, crash };

struct Row {
  Fault fault;
  const char* name;
  Kind kind;
  double most;  // its highest probability at one occasion
};

constexpr Row kTable[] = {
    {Fault::read_error, "read_error", Kind::error, 0.5},
    {Fault::write_error, "write_error", Kind::error, 0.5},
    {Fault::drive_full, "drive_full", Kind::error, 0.5},
    {Fault::torn_and_told, "torn_and_told", Kind::error, 0.2},
    {Fault::short_submit, "short_submit", Kind::delay, 0.8},
    {Fault::short_transfer, "short_transfer", Kind::delay, 0.5},
    {Fault::interrupted, "interrupted", Kind::delay, 0.1},
    {Fault::duplicate_completion, "duplicate_completion", Kind::delay, 0.3},
    {Fault::latency_spike, "latency_spike", Kind::error, 0.1},
    {Fault::lost_request, "lost_request", Kind::error, 0.05},
    {Fault::sync_error, "sync_error", Kind::error, 0.5},
    {Fault::drive_death, "drive_death", Kind::error, 0.005},
    {Fault::flip_at_rest, "flip_at_rest", Kind::lie, 0.02},
    {Fault::flip_on_read, "flip_on_read", Kind::lie, 0.2},
    {Fault::torn_write, "torn_write", Kind::lie, 0.2},
    {Fault::misdirected_write, "misdirected_write", Kind::lie, 0.1},
    {Fault::short_file, "short_file", Kind::lie, 0.003},
    {Fault::index_stale, "index_stale", Kind::lie, 0.5},
    {Fault::index_swapped, "index_swapped", Kind::lie, 0.5},
    {Fault::index_damaged, "index_damaged", Kind::lie, 0.5},
    {Fault::index_full, "index_full", Kind::delay, 0.1},
    {Fault::index_update_lost, "index_update_lost", Kind::error, 0.02},
    {Fault::index_flush_error, "index_flush_error", Kind::error, 0.3},
    {Fault::index_gone, "index_gone", Kind::error, 0.3},
    {Fault::index_corrupt, "index_corrupt", Kind::error, 0.3},
    {Fault::copy_refused, "copy_refused", Kind::delay, 0.5},
    {Fault::record_refused, "record_refused", Kind::delay, 0.5},
    {Fault::wait_refused, "wait_refused", Kind::delay, 0.5},
    {Fault::idle_device, "idle_device", Kind::delay, 0.8},
    {Fault::device_failure, "device_failure", Kind::error, 0.002},
    {Fault::no_device_memory, "no_device_memory", Kind::error, 0.3},
    {Fault::no_pinning, "no_pinning", Kind::delay, 0.5},
    {Fault::no_stream, "no_stream", Kind::error, 0.3},
    {Fault::no_drive, "no_drive", Kind::error, 0.3},
    {Fault::dead_drive, "dead_drive", Kind::error, 0.2},
    {Fault::kill, "kill", Kind::crash, 1},
    {Fault::power_cut, "power_cut", Kind::crash, 1},
};
static_assert(std::size(kTable) == kFaultCount);
constexpr bool in_order() {
  for (std::size_t i = 0; i < kFaultCount; ++i) {
    if (index_of(kTable[i].fault) != i) return false;
  }
  return true;
}
static_assert(in_order());

// The kinds of faults that a seed may have at all. Delays are legal behaviour: every seed has them.
struct Profile {
  bool errors;
  bool lies;
  bool crashes;
};
constexpr Profile kProfiles[] = {
    {false, false, false}, {false, false, true}, {true, false, true},
    {false, true, true},   {true, true, true},   {true, true, true},
};

bool in(const Profile& profile, Kind kind) {
  switch (kind) {
    case Kind::delay:
      return true;
    case Kind::error:
      return profile.errors;
    case Kind::lie:
      return profile.lies;
    case Kind::crash:
      return profile.crashes;
  }
  return false;
}

}  // namespace

const char* to_string(Fault fault) {
  return kTable[index_of(fault)].name;
}

FaultPlan::FaultPlan(std::uint64_t seed, FaultMask allowed) {
  Random random(seed, "fault plan");
  const Profile& profile = kProfiles[random.below(std::size(kProfiles))];
  for (const Row& row : kTable) {
    streams_.emplace_back(seed, row.name);
    // Drawn whether it is used or not, so that a fault switched off leaves the others as they are.
    const bool chosen = row.kind == Kind::crash || random.chance(0.5);
    const double weight = row.most * std::pow(0.5, random.below(6));
    if (chosen && in(profile, row.kind) && (allowed & bit(row.fault)) != 0) {
      weights_[index_of(row.fault)] = weight;
    }
  }
}

bool FaultPlan::strikes(Fault fault) {
  if (!possible(fault)) return false;
  if (!streams_[index_of(fault)].chance(weights_[index_of(fault)])) return false;
  count(fault);
  return true;
}

FaultMask FaultPlan::mask() const {
  FaultMask mask = 0;
  for (const Row& row : kTable) mask |= possible(row.fault) ? bit(row.fault) : 0;
  return mask;
}

std::uint64_t FaultPlan::lies() const {
  std::uint64_t count = 0;
  for (const Row& row : kTable) count += row.kind == Kind::lie ? hits(row.fault) : 0;
  return count;
}

std::uint64_t FaultPlan::failures() const {
  std::uint64_t count = lies();
  for (const Row& row : kTable) count += row.kind == Kind::error ? hits(row.fault) : 0;
  return count;
}

}  // namespace terrace::sim
