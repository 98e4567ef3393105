// What a run has seen: an oracle that looks at nothing must fail.
// Thread rule: plain values.
#pragma once

#include <array>
#include <cstdint>

#include "sim/faults.hpp"
#include "terrace/events.hpp"

namespace terrace::sim {

struct Coverage {
  std::array<std::uint64_t, kFaultCount> faults{};
  std::array<std::uint64_t, kPlaceCount> hits{};  // usable blocks, by the place of the match
  std::uint64_t blocks_verified = 0;              // read back and compared, every byte
  std::uint64_t fetches = 0;
  std::uint64_t cut_short = 0;  // fetches that did not bring all of their match
  std::uint64_t cancelled = 0;
  std::uint64_t abandoned = 0;
  std::uint64_t commits = 0;
  std::uint64_t stores = 0;
  std::uint64_t refusals = 0;  // no_space
  std::uint64_t flushes = 0;
  std::uint64_t drops = 0;
  std::uint64_t runs = 0;  // requests to a drive for several blocks
  std::uint64_t shed = 0;
  std::uint64_t scrubbed = 0;
  std::uint64_t drives_lost = 0;
  std::uint64_t lives = 0;
  std::uint64_t opens_refused = 0;
  std::uint64_t closed_well = 0;
  std::uint64_t at_rest = 0;  // accounts that were balanced to the last slot
  std::uint64_t warm_expected = 0;
  std::uint64_t warm_found = 0;
  std::uint64_t digest = 0;

  void add(const Coverage& other) {
    const auto add_all = [](auto& to, const auto& from) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    };
    add_all(faults, other.faults);
    add_all(hits, other.hits);
    constexpr std::uint64_t Coverage::*kCounters[] = {
        &Coverage::blocks_verified, &Coverage::fetches,     &Coverage::cut_short,
        &Coverage::cancelled,       &Coverage::abandoned,   &Coverage::commits,
        &Coverage::stores,          &Coverage::refusals,    &Coverage::flushes,
        &Coverage::drops,           &Coverage::runs,        &Coverage::shed,
        &Coverage::scrubbed,        &Coverage::drives_lost, &Coverage::lives,
        &Coverage::opens_refused,   &Coverage::closed_well, &Coverage::at_rest,
        &Coverage::warm_expected,   &Coverage::warm_found,
    };
    for (const auto counter : kCounters) this->*counter += other.*counter;
    digest ^= other.digest;
  }
};

}  // namespace terrace::sim
