#include "nvme/rows.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "terrace/units.hpp"

namespace terrace::bench {
namespace {

using nlohmann::json;

constexpr double kCpuBar = 1.3;         // hashing apart: rows that do not hash
constexpr std::uint32_t kDepthBar = 8;  // below, the device's latency is what is measured

// The least that a ratio of `op` may be; nothing where none was agreed on.
std::optional<double> bar_of(const std::string& op, const std::string& ratio,
                             const RowPlace& place) {
  const bool small = place.block_bytes <= 64 * KiB;
  if (place.queue_depth < kDepthBar) return std::nullopt;
  if (op == "read" && ratio == "ratio") return small ? 0.90 : 0.95;
  if (op == "write" && ratio == "ratio") return small ? 0.85 : 0.92;
  if (ratio == "unverified_ratio") return place.block_bytes <= 256 * KiB ? 0.88 : 0.92;
  const bool runs = op == "write_run" && ratio == "single_depth_ratio";
  if (runs && small && place.queue_depth == kDepthBar) return 2.2;  // deeper, single ones are fast
  return std::nullopt;
}

void add_bar(json& row, const char* ratio, const RowPlace& place) {
  const auto bar = bar_of(row["op"], ratio, place);
  if (!bar) return;
  row["bars"].push_back({{"of", ratio}, {"bar", *bar}, {"met", row[ratio].get<double>() >= *bar}});
}

void add_cpu_bar(json& row) {
  const bool hashes = row["op"] != "read" && row["op"] != "write_unsealed";
  if (hashes || row["queue_depth"] < kDepthBar) return;
  row["bars"].push_back(
      {{"of", "cpu_ratio"}, {"bar", kCpuBar}, {"met", row["cpu_ratio"].get<double>() <= kCpuBar}});
}

// Ratios over others of ours, and every bar.
std::string remarks(const json& row) {
  std::string text;
  for (const char* ratio : {"unverified_ratio", "single_ratio", "single_depth_ratio"}) {
    if (row.contains(ratio)) text += fmt::format("  {} {:.2f}", ratio, row[ratio].get<double>());
  }
  for (const json& bar : row["bars"]) {
    text += fmt::format("  [{} {} {}]", bar["of"].get<std::string>(), bar["bar"].get<double>(),
                        bar["met"].get<bool>() ? "met" : "MISSED");
  }
  return text;
}

std::string number(const json& row, const char* field, int decimals) {
  return row.contains(field) ? fmt::format("{:.{}f}", row[field].get<double>(), decimals) : "-";
}

}  // namespace

json row_of(const Rounds& rounds, const RowSpec& spec, const RowPlace& place) {
  const Rounds::Ratio ratio = rounds.speed_ratio(spec.op, spec.limit);
  json row = {{"op", spec.op},
              {"block_bytes", place.block_bytes},
              {"queue_depth", place.queue_depth},
              {"run_blocks", place.run_blocks},
              {"ours_gbps", rounds.gbps(spec.op)},
              {"limit_gbps", rounds.gbps(spec.limit)},
              {"ratio", ratio.median},
              {"ratio_p25", ratio.p25},
              {"ratio_p75", ratio.p75},
              {"cpu_s_per_gb", rounds.cpu_s_per_gb(spec.op)},
              {"limit_cpu_s_per_gb", rounds.cpu_s_per_gb(spec.limit)},
              {"cpu_ratio", rounds.cpu_ratio(spec.op, spec.limit)},
              {"bars", json::array()}};
  if (!spec.payload_limit.empty()) {
    row["payload_limit_gbps"] = rounds.gbps(spec.payload_limit);
    row["payload_ratio"] = rounds.speed_ratio(spec.op, spec.payload_limit).median;
  }
  add_bar(row, "ratio", place);
  add_cpu_bar(row);
  for (const auto& [base, name] : spec.bases) {
    row[name] = rounds.speed_ratio(spec.op, base).median;
    add_bar(row, name.c_str(), place);
  }
  return row;
}

json peer_row(const std::string& op, const std::string& label, const Sample& sample,
              const RowPlace& place) {
  return {{"op", op},
          {"label", label},
          {"block_bytes", place.block_bytes},
          {"queue_depth", place.queue_depth},
          {"run_blocks", place.run_blocks},
          {"gbps", sample.gbps},
          {"cpu_s_per_gb", sample.cpu_s_per_gb}};
}

void print_head() {
  fmt::print("{:<15}{:>9}{:>7}{:>5}{:>7}{:>7}{:>7}{:>6}{:>6}{:>9}{:>10}{:>7}{:>7}\n", "", "block",
             "depth", "run", "ours", "limit", "ratio", "p25", "p75", "payload", "CPU s/GB", "limit",
             "ratio");
}

void print_row(const json& row) {
  const bool ours = row.contains("ours_gbps");
  fmt::print("{:<15}{:>9}{:>7}{:>5}{:>7}{:>7}{:>7}{:>6}{:>6}{:>9}{:>10}{:>7}{:>7}{}\n",
             row["op"].get<std::string>(), format_bytes(row["block_bytes"].get<std::uint64_t>()),
             row["queue_depth"].get<int>(), row["run_blocks"].get<int>(),
             number(row, ours ? "ours_gbps" : "gbps", 2), number(row, "limit_gbps", 2),
             number(row, "ratio", 2), number(row, "ratio_p25", 2), number(row, "ratio_p75", 2),
             number(row, "payload_ratio", 2), number(row, "cpu_s_per_gb", 3),
             number(row, "limit_cpu_s_per_gb", 3), number(row, "cpu_ratio", 2),
             ours ? remarks(row) : "  " + row["label"].get<std::string>());
}

}  // namespace terrace::bench
