#include "serve/demo/table.hpp"

#include <cstdio>

namespace terrace::demo {
namespace {

// 1234567 -> "1,234,567"; 0 -> "-", so that the eye finds the tier that answered.
std::string count(std::uint32_t value) {
  if (value == 0) return "-";
  std::string digits = std::to_string(value);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string milliseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), value < 100 ? "%.1f" : "%.0f", value);
  return text;
}

}  // namespace

std::string table_head() {
  return "                         cached prompt tokens\n"
         "  state                  HBM     DRAM     NVMe     TTFT ms   speed-up   tokens\n"
         "  ---------------------------------------------------------------------------\n";
}

std::string table_row(const std::string& state, const Completion& completion,
                      const Completion& cold) {
  const bool is_cold = &completion == &cold;
  char speed_up[32];
  std::snprintf(speed_up, sizeof(speed_up), "%.1fx", cold.ttft_ms / completion.ttft_ms);
  const char* verdict = is_cold                                  ? "reference"
                        : completion.token_ids == cold.token_ids ? "equal"
                                                                 : "DIFFERENT";
  char row[160];
  std::snprintf(row, sizeof(row), "  %-18s %7s  %7s  %7s  %10s %10s   %s\n", state.c_str(),
                count(completion.hbm_tokens).c_str(), count(completion.dram_tokens).c_str(),
                count(completion.nvme_tokens).c_str(), milliseconds(completion.ttft_ms).c_str(),
                speed_up, verdict);
  return row;
}

}  // namespace terrace::demo
