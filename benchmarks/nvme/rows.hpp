// The rows of nvme_bench: one comparison each, as JSON and as a table.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "nvme/sample.hpp"

namespace terrace::bench {

struct RowSpec {
  std::string op;             // of the row, and the contestant's name
  std::string limit;          // contestants to compare with
  std::string payload_limit;  // empty: none
  // Contestants of our own, and what the ratio over each is called.
  std::vector<std::pair<std::string, std::string>> bases = {};
};
struct RowPlace {
  std::uint64_t block_bytes = 0;
  std::uint32_t queue_depth = 0;
  std::uint32_t run_blocks = 1;
};

// A row of ours, with the bars that apply to it and whether they were met.
nlohmann::json row_of(const Rounds& rounds, const RowSpec& spec, const RowPlace& place);
// A row of somebody else's: labelled, and without bars.
nlohmann::json peer_row(const std::string& op, const std::string& label, const Sample& sample,
                        const RowPlace& place);

void print_head();
void print_row(const nlohmann::json& row);

}  // namespace terrace::bench
