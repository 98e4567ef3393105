// What can go wrong, how often it does under one seed, and how often it did.
//
// A new fault is a line in the enum, a line in the table in faults.cpp, and a strikes() where the
// world does what it says.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/random.hpp"

namespace terrace::sim {

enum class Fault : std::uint8_t {
  // The drive fails, and says so.
  read_error,
  write_error,
  drive_full,
  torn_and_told,
  short_submit,
  // The kernel's ways: part of a request, an interrupted one, a completion that comes twice.
  short_transfer,
  interrupted,
  duplicate_completion,
  latency_spike,
  lost_request,
  sync_error,
  drive_death,
  // What is on the drive is not what was written, and nobody says so.
  flip_at_rest,
  flip_on_read,
  torn_write,
  misdirected_write,
  short_file,
  index_stale,
  index_swapped,
  index_damaged,
  // The index fails.
  index_full,
  index_update_lost,
  index_flush_error,
  index_gone,
  index_corrupt,
  // The device of the copies.
  copy_refused,
  record_refused,
  wait_refused,
  idle_device,
  device_failure,
  // Opening.
  no_device_memory,
  no_pinning,
  no_stream,
  no_drive,
  dead_drive,
  // The process, the machine.
  kill,
  power_cut,
};
inline constexpr std::size_t kFaultCount = static_cast<std::size_t>(Fault::power_cut) + 1;

constexpr std::size_t index_of(Fault fault) {
  return static_cast<std::size_t>(fault);
}
const char* to_string(Fault fault);

using FaultMask = std::uint64_t;
inline constexpr FaultMask kEveryFault = (FaultMask{1} << kFaultCount) - 1;
constexpr FaultMask bit(Fault fault) {
  return FaultMask{1} << index_of(fault);
}

class FaultPlan {
 public:
  // Which of `allowed` there are under this seed, and how often: some seeds know no fault at all,
  // some crashes only, and some everything.
  FaultPlan(std::uint64_t seed, FaultMask allowed);

  // Whether it happens, here and now.
  bool strikes(Fault fault);
  bool possible(Fault fault) const { return weights_[index_of(fault)] > 0; }
  FaultMask mask() const;
  void count(Fault fault) { ++hits_[index_of(fault)]; }

  std::uint64_t hits(Fault fault) const { return hits_[index_of(fault)]; }
  const std::array<std::uint64_t, kFaultCount>& hits() const { return hits_; }
  // How often the drive or the index lied: from then on, what was written may be gone.
  std::uint64_t lies() const;
  // How often anything but a crash and a short delay happened.
  std::uint64_t failures() const;

 private:
  std::array<double, kFaultCount> weights_{};
  std::array<std::uint64_t, kFaultCount> hits_{};
  std::vector<Random> streams_;
};

}  // namespace terrace::sim
