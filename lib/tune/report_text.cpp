#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ostream>

#include "terrace/units.hpp"
#include "tune/report.hpp"

namespace terrace::tune {
namespace {

using internal::RecordFormat;

constexpr std::size_t kRootDigits = 12;  // enough to tell models apart
constexpr std::size_t kModelsMax = 20;   // a line each; --json has them all
constexpr std::size_t kGroupsMax = 4;

// 1234567 -> "1,234,567", in every locale.
std::string grouped(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

// "3.99": the record that counts 99 in the third life.
std::string sequence_text(std::uint64_t sequence) {
  const std::uint64_t life = sequence >> internal::kLifeShift;
  return fmt::format("{}.{}", life, sequence - (life << internal::kLifeShift));
}

class Printer {
 public:
  Printer(const Report& report, std::ostream& out) : report_(report), out_(out) {}

  void print() {
    out_ << report_.path << '\n';
    print_directory();
    if (report_.manifest) {
      print_geometry(report_.manifest->format);
      print_records();
      print_models();
      print_chains();
    }
    print_verdict();
  }

 private:
  void line(const char* label, const std::string& text) {
    out_ << fmt::format("  {:<16}{}\n", label, text);
  }
  void count(const char* label, std::uint64_t value, const char* remark = "") {
    out_ << fmt::format("  {:<16}{:>14}{}{}\n", label, grouped(value), *remark == '\0' ? "" : "  ",
                        remark);
  }

  void print_directory() {
    const std::string owner = report_.owner.empty() ? "nobody named" : report_.owner;
    line("lock", report_.in_use ? fmt::format("held by {}: figures may be moving", owner)
                                : fmt::format("free, last held by {}", owner));
    if (!report_.manifest) {
      line("manifest", report_.damage.empty() ? "none: nothing was ever written here" : "unusable");
    }
  }

  std::string index_text() const {
    const IndexReport& index = report_.index;
    if (!index.present) return "none: a start scans the records";
    const std::string bytes = format_bytes(report_.usage.index_bytes_on_disk) + " on disk";
    if (!index.read) return fmt::format("{}; not read: {}", bytes, index.not_read_because);
    return fmt::format("{}; {}, {} entries, {} stale", bytes,
                       index.complete ? "complete" : "incomplete: a start scans the records",
                       grouped(index.entries), grouped(index.stale));
  }

  void print_geometry(const RecordFormat& format) {
    const Layout& layout = format.layout();
    line("manifest", fmt::format("format {}, records of format {}", internal::kManifestVersion,
                                 internal::kRecordFormatVersion));
    line("layout", fmt::format("{}, {} tokens a block, {}", to_string(layout.dtype),
                               layout.block_tokens, to_string(layout.order)));
    for (std::size_t i = 0; i < std::min(layout.groups.size(), kGroupsMax); ++i) {
      const Group& group = layout.groups[i];
      line("", fmt::format("{} layers x {} KV heads x {}, {}", group.layer_count, group.kv_heads,
                           group.head_dim, to_string(group.kind)));
    }
    if (layout.groups.size() > kGroupsMax) {
      line("", fmt::format("and {} more groups", layout.groups.size() - kGroupsMax));
    }
    line("block",
         fmt::format("{} in a record of {}, header of {}", format_bytes(format.payload_bytes()),
                     format_bytes(format.record_bytes()), format_bytes(format.header_bytes())));
    const std::uint64_t slots = report_.manifest->slot_count;
    line("slots", fmt::format("{}, of {} together; blocks.dat is {} long, {} on disk",
                              grouped(slots), format_bytes(slots * format.record_bytes()),
                              format_bytes(report_.usage.data_bytes),
                              format_bytes(report_.usage.data_bytes_on_disk)));
    line("index", index_text());
  }

  void print_records() {
    out_ << "\n  records\n";
    count("good", report_.summary.good);
    for (const auto& [verdict, number] : report_.summary.refused) {
      count(internal::to_string(verdict), number);
    }
    if (report_.summary.unreadable > 0) count("unreadable", report_.summary.unreadable);
    count("not_a_record", report_.findings.empty_slots, "slots that hold none");
    line("payloads", payloads_text());
  }

  std::string payloads_text() const {
    if (!report_.verified) return "not read: --verify does";
    const double bytes = static_cast<double>(report_.findings.verified_bytes);
    return fmt::format("{} verified, at {:.2f} GB/s", format_bytes(report_.findings.verified_bytes),
                       bytes / report_.findings.seconds / 1e9);
  }

  void print_models() {
    const auto& models = report_.summary.models;
    out_ << fmt::format("\n  {:<16}{:>14}{:>18}\n", "model (root)", "blocks", "tokens");
    for (std::size_t i = 0; i < std::min(models.size(), kModelsMax); ++i) {
      out_ << fmt::format("  {:<16}{:>14}{:>18}\n", to_hex(models[i].root).substr(0, kRootDigits),
                          grouped(models[i].blocks), grouped(models[i].tokens));
    }
    if (models.size() > kModelsMax) {
      out_ << fmt::format("  and {} more\n", models.size() - kModelsMax);
    }
    const Summary& all = report_.summary;
    out_ << fmt::format("  {:<16}{:>14}{:>18}\n", "all", grouped(all.good - all.duplicates),
                        grouped(all.tokens));
  }

  void print_chains() {
    const Summary& summary = report_.summary;
    out_ << "\n  chains\n";
    count("first blocks", summary.first_blocks);
    count("orphans", summary.orphans, "their parent is not here");
    count("unreachable", summary.unreachable, "orphans, and what follows them");
    count("duplicates", summary.duplicates, "records of a block that is here already");
    line("depth", fmt::format("p50 {}, p90 {}, max {}", grouped(summary.depth_p50),
                              grouped(summary.depth_p90), grouped(summary.depth_max)));
    line("sequence", fmt::format("{} to {} (life.count)", sequence_text(summary.sequence_min),
                                 sequence_text(summary.sequence_max)));
  }

  void print_verdict() {
    out_ << '\n';
    for (const std::string& sentence : report_.damage) out_ << "damage: " << sentence << '\n';
    if (report_.damage.empty()) out_ << "clean\n";
  }

  const Report& report_;
  std::ostream& out_;
};

}  // namespace

void print_report(const Report& report, std::ostream& out) {
  Printer(report, out).print();
}

void print_list(const std::vector<Record>& records, std::ostream& out) {
  out << fmt::format("{:>10}  {:<32}  {:>7}  {:>6}  {:>12}  {}\n", "slot", "key", "depth", "tokens",
                     "sequence", "verdict");
  for (const Record& record : records) {
    out << fmt::format("{:>10}  {:<32}  {:>7}  {:>6}  {:>12}  {}\n", record.slot, key_of(record),
                       record.depth, record.tokens, sequence_text(record.sequence),
                       state_of(record));
  }
}

std::string state_of(const Record& record) {
  if (record.os_error != 0) return fmt::format("unreadable: {}", std::strerror(record.os_error));
  return internal::to_string(record.verdict);
}

std::string key_of(const Record& record) {
  if (record.tokens == 0) return "-";
  return fmt::format("{:016x}{:016x}", record.self.key.high, record.self.key.low);
}

}  // namespace terrace::tune
