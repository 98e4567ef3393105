// What an inspection found, as text for people and as JSON for machines.
//
// Called by: inspect(), tests.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tier/nvme_reader.hpp"
#include "tune/scan.hpp"
#include "tune/summary.hpp"

namespace terrace::tune {

struct IndexReport {
  bool present = false;
  bool read = false;
  bool damaged = false;
  std::string not_read_because;  // where it is present
  bool complete = false;         // the next start relies on it, and need not scan
  std::uint64_t entries = 0;
  std::uint64_t stale = 0;  // entries that say other than the record in their slot
};

struct Report {
  std::string path;
  bool in_use = false;
  std::string owner;
  std::optional<internal::NvmeManifest> manifest;  // absent: of the rest, only usage and damage
  internal::NvmeReader::Usage usage;
  IndexReport index;
  bool verified = false;  // payloads were read, too
  Findings findings;
  Summary summary;
  std::vector<std::string> damage;  // one sentence each; empty: clean
};

void print_report(const Report& report, std::ostream& out);
nlohmann::json report_json(const Report& report);

// One line a record.
void print_list(const std::vector<Record>& records, std::ostream& out);
void print_list_json(const std::vector<Record>& records, std::ostream& out);

// What of a record was found to be wrong, or "good".
std::string state_of(const Record& record);
// As 32 hexadecimal digits, the high word first; "-" where the header does not say.
std::string key_of(const Record& record);

}  // namespace terrace::tune
