#include <nlohmann/json.hpp>
#include <ostream>

#include "tune/report.hpp"

namespace terrace::tune {
namespace {

using internal::Verdict;
using nlohmann::json;

json layout_json(const Layout& layout) {
  json groups = json::array();
  for (const Group& group : layout.groups) {
    groups.push_back({{"kind", to_string(group.kind)},
                      {"first_layer", group.first_layer},
                      {"layer_count", group.layer_count},
                      {"kv_heads", group.kv_heads},
                      {"head_dim", group.head_dim}});
  }
  return {{"block_tokens", layout.block_tokens},
          {"dtype", to_string(layout.dtype)},
          {"order", to_string(layout.order)},
          {"groups", groups},
          {"layout_digest", to_hex(layout.layout_digest())}};
}

json manifest_json(const internal::NvmeManifest& manifest) {
  return {{"format_version", internal::kManifestVersion},
          {"record_format_version", internal::kRecordFormatVersion},
          {"layout", layout_json(manifest.format.layout())},
          {"block_bytes", manifest.format.payload_bytes()},
          {"header_bytes", manifest.format.header_bytes()},
          {"record_bytes", manifest.format.record_bytes()},
          {"slot_count", manifest.slot_count},
          {"life", manifest.life}};
}

json disk_json(const Report& report) {
  const auto& usage = report.usage;
  return {{"data_bytes", usage.data_bytes},
          {"data_bytes_on_disk", usage.data_bytes_on_disk},
          {"index_bytes_on_disk", usage.index_bytes_on_disk}};
}

json index_json(const IndexReport& index) {
  json result = {{"present", index.present}, {"read", index.read}};
  if (index.present && !index.read) result["not_read_because"] = index.not_read_because;
  if (index.read) {
    result["complete"] = index.complete;
    result["entries"] = index.entries;
    result["stale"] = index.stale;
  }
  return result;
}

json records_json(const Report& report) {
  json records = {{"good", report.summary.good},
                  {"not_a_record", report.findings.empty_slots},
                  {"unreadable", report.summary.unreadable}};
  for (const Verdict verdict :
       {Verdict::unknown_format, Verdict::header_damaged, Verdict::layout_differs,
        Verdict::other_block, Verdict::payload_damaged}) {
    const auto found = report.summary.refused.find(verdict);
    records[internal::to_string(verdict)] =
        found == report.summary.refused.end() ? 0 : found->second;
  }
  return records;
}

json payloads_json(const Report& report) {
  json payloads = {{"verified", report.verified}};
  if (!report.verified) return payloads;
  const double bytes = static_cast<double>(report.findings.verified_bytes);
  payloads["bytes"] = report.findings.verified_bytes;
  payloads["gbps"] = bytes / report.findings.seconds / 1e9;
  return payloads;
}

json models_json(const Summary& summary) {
  json models = json::array();
  for (const ModelSummary& model : summary.models) {
    models.push_back(
        {{"root", to_hex(model.root)}, {"blocks", model.blocks}, {"tokens", model.tokens}});
  }
  return models;
}

json chains_json(const Summary& summary) {
  return {{"first_blocks", summary.first_blocks}, {"orphans", summary.orphans},
          {"unreachable", summary.unreachable},   {"duplicates", summary.duplicates},
          {"depth_p50", summary.depth_p50},       {"depth_p90", summary.depth_p90},
          {"depth_max", summary.depth_max}};
}

json record_json(const Record& record) {
  json line = {{"slot", record.slot}, {"verdict", state_of(record)}};
  if (record.tokens == 0) return line;  // its header says nothing
  line["key"] = key_of(record);
  line["root"] = to_hex(record.root);
  line["depth"] = record.depth;
  line["tokens"] = record.tokens;
  line["sequence"] = record.sequence;
  return line;
}

}  // namespace

json report_json(const Report& report) {
  json result = {{"path", report.path},
                 {"lock", {{"in_use", report.in_use}, {"owner", report.owner}}},
                 {"disk", disk_json(report)},
                 {"damage", report.damage}};
  if (!report.manifest) return result;
  const Summary& summary = report.summary;
  result["manifest"] = manifest_json(*report.manifest);
  result["index"] = index_json(report.index);
  result["records"] = records_json(report);
  result["payloads"] = payloads_json(report);
  result["models"] = models_json(summary);
  result["chains"] = chains_json(summary);
  result["tokens"] = summary.tokens;
  result["sequence"] = {{"min", summary.sequence_min}, {"max", summary.sequence_max}};
  return result;
}

void print_list_json(const std::vector<Record>& records, std::ostream& out) {
  for (const Record& record : records) out << record_json(record).dump() << '\n';
}

}  // namespace terrace::tune
