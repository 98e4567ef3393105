// Every slot of a cache directory, read by a few threads.
//
// Called by: inspect().
// Thread rule: blocks; progress is told by the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tier/nvme_reader.hpp"

namespace terrace::tune {

// A slot that holds something, or cannot be read.
struct Record {
  std::uint32_t slot = 0;
  std::int32_t os_error = 0;  // of the read; then the rest says nothing
  internal::Verdict verdict = internal::Verdict::not_a_record;
  // Of a record with an intact header; zeros otherwise.
  Digest root{};
  ChainPoint self;
  Digest parent{};  // lineage
  std::uint32_t depth = 0;
  std::uint32_t tokens = 0;
  std::uint64_t sequence = 0;

  bool good() const noexcept { return os_error == 0 && verdict == internal::Verdict::good; }
};

struct Findings {
  std::vector<Record> records;  // by slot
  std::uint32_t empty_slots = 0;
  std::uint64_t verified_bytes = 0;  // of payloads, good or not
  double seconds = 0;
};

using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Throws std::runtime_error where there is no memory to read into.
Findings scan(const internal::NvmeReader& reader, bool payloads, const Progress& progress);

}  // namespace terrace::tune
