#include "tune/inspect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>

#include "terrace/units.hpp"
#include "tune/report.hpp"

namespace terrace::tune {
namespace {

using internal::NvmeReader;
using internal::RecordMeta;
using internal::Verdict;

std::string text_of(const Error& error) {
  if (error.code != Code::io_error || error.os_error == 0) return error.message;
  return fmt::format("{} ({})", error.message, std::strerror(error.os_error));
}

// Throws std::runtime_error where there is nothing to look at, or the look would not be wanted.
NvmeReader open(const InspectOptions& options) {
  auto reader = NvmeReader::open(options.path);
  if (!reader) throw std::runtime_error(text_of(reader.error()));
  if (reader->in_use() && !options.live) {
    throw std::runtime_error(
        fmt::format("is in use: {}. Stop that cache, or look anyway with --live (figures may be "
                    "moving then)",
                    reader->owner()));
  }
  const auto& manifest = reader->manifest();
  if (!manifest && manifest.error().code == Code::unsupported) {
    throw std::runtime_error(
        fmt::format("{}: inspect it with that version. A cache of this one would empty the "
                    "directory",
                    manifest.error().message));
  }
  return std::move(*reader);
}

bool agree(const RecordMeta& entry, const Record& record) {
  return entry.self == record.self && entry.parent.lineage == record.parent &&
         entry.root == record.root && entry.depth == record.depth &&
         entry.sequence == record.sequence;
}

IndexReport look_at_index(const NvmeReader& reader, const std::vector<Record>& records) {
  IndexReport index;
  index.present = reader.has_index();
  if (!index.present) return index;
  if (reader.in_use()) {
    index.not_read_because = "a cache has it open";
    return index;
  }
  const auto read = reader.read_index([&](std::uint32_t slot, std::span<const std::byte> header) {
    RecordMeta meta;
    const bool intact = reader.manifest()->format.parse(header, meta) == Verdict::good;
    const auto record = std::ranges::lower_bound(records, slot, {}, &Record::slot);
    const bool there = record != records.end() && record->slot == slot;
    ++index.entries;
    index.stale += !(intact && there && agree(meta, *record));
  });
  index.read = read.has_value();
  index.complete = read && *read;
  index.damaged = !read && read.error().code == Code::corrupt;
  if (!read) index.not_read_because = text_of(read.error());
  return index;
}

void note_damage(const NvmeReader& reader, Report& report) {
  if (!report.manifest) {
    if (report.usage.data_bytes == 0 && reader.manifest().error().code != Code::corrupt) return;
    report.damage.push_back(fmt::format("{}: the next cache that opens the directory empties it",
                                        reader.manifest().error().message));
    return;
  }
  const std::uint64_t slots_bytes =
      report.manifest->slot_count * report.manifest->format.record_bytes();
  if (report.usage.data_bytes < slots_bytes) {
    report.damage.push_back(fmt::format("blocks.dat ends {} before its last slot does",
                                        format_bytes(slots_bytes - report.usage.data_bytes)));
  }
  for (const auto& [verdict, count] : report.summary.refused) {
    report.damage.push_back(fmt::format("{} {} {}", count, count == 1 ? "record is" : "records are",
                                        internal::to_string(verdict)));
  }
  if (report.summary.unreadable > 0) {
    report.damage.push_back(
        fmt::format("slots that cannot be read: {}", report.summary.unreadable));
  }
  if (report.index.damaged) {
    report.damage.push_back(report.index.not_read_because + ": the next start scans the records");
  }
}

Report look(const NvmeReader& reader, const InspectOptions& options, const Progress& progress) {
  Report report;
  report.path = options.path;
  report.in_use = reader.in_use();
  report.owner = reader.owner();
  report.usage = reader.usage();
  report.verified = options.verify;
  if (const auto& manifest = reader.manifest()) {
    report.manifest = *manifest;
    report.findings = scan(reader, options.verify, progress);
    report.summary = summarise(report.findings.records);
    report.index = look_at_index(reader, report.findings.records);
  }
  note_damage(reader, report);
  return report;
}

void print(const Report& report, const InspectOptions& options, std::ostream& out) {
  if (options.list && options.json) {
    print_list_json(report.findings.records, out);
  } else if (options.list) {
    print_list(report.findings.records, out);
  } else if (options.json) {
    out << report_json(report).dump(2) << '\n';
  } else {
    print_report(report, out);
  }
  out.flush();
}

}  // namespace

int inspect(const InspectOptions& options, std::ostream& out, std::ostream& err,
            bool err_is_terminal) {
  const char* clear_line = err_is_terminal ? "\r\x1b[K" : "";
  try {
    const NvmeReader reader = open(options);
    const auto progress = [&](std::uint64_t done, std::uint64_t total) {
      err << fmt::format("{}terrace-tune: {} {}%", clear_line,
                         options.verify ? "verifying" : "reading headers", 100 * done / total)
          << std::flush;
    };
    const Report report = look(reader, options, err_is_terminal ? progress : Progress());
    err << clear_line << std::flush;
    print(report, options, out);
    return report.damage.empty() ? kClean : kDamageFound;
  } catch (const std::exception& error) {
    err << fmt::format("{}terrace-tune: {}: {}\n", clear_line, options.path, error.what());
    return kCannotInspect;
  }
}

}  // namespace terrace::tune
