// What the records of a directory add up to: models, chains, duplicates.
//
// Called by: inspect(), tests.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tune/scan.hpp"

namespace terrace::tune {

struct ModelSummary {
  Digest root{};  // of a model's identity, within one scope
  std::uint64_t blocks = 0;
  std::uint64_t tokens = 0;
};

// But for `refused` and `unreadable`: of good records, each lineage once.
struct Summary {
  std::uint64_t good = 0;                              // records, duplicates included
  std::map<internal::Verdict, std::uint64_t> refused;  // without empty slots
  std::uint64_t unreadable = 0;

  std::vector<ModelSummary> models;  // the largest first
  std::uint64_t tokens = 0;
  std::uint64_t first_blocks = 0;  // of depth 0: chains begin here
  std::uint64_t orphans = 0;       // the parent is not here
  std::uint64_t unreachable = 0;   // some ancestor is not here: orphans and what follows them
  std::uint64_t duplicates = 0;    // records of a lineage that another one has, too
  std::uint32_t depth_p50 = 0;
  std::uint32_t depth_p90 = 0;
  std::uint32_t depth_max = 0;
  std::uint64_t sequence_min = 0;
  std::uint64_t sequence_max = 0;
};

Summary summarise(const std::vector<Record>& records);

}  // namespace terrace::tune
