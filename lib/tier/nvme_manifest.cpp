// See nvme_manifest.hpp.
#include "tier/nvme_manifest.hpp"

#include <fmt/format.h>

#include <bit>
#include <charconv>

#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

constexpr std::string_view kName = "terrace-cache ";
constexpr std::uint32_t kAlignmentMin = 4096;  // O_DIRECT on any sector size in use
constexpr std::uint32_t kAlignmentMax = 1 * MiB;

std::string format_versions() {
  return fmt::format("{}{}\nrecord_format {}\n", kName, kManifestVersion, kRecordFormatVersion);
}

// Returns: the number after `name` at the start of a line; 0 where there is none.
std::uint32_t number_of(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  std::uint32_t value = 0;
  if (at == std::string_view::npos) return value;
  text.remove_prefix(at + name.size());
  (void)std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

unexpected damaged() {
  return fail(Code::corrupt, "terrace.manifest is damaged");
}

}  // namespace

std::string format_manifest(const NvmeManifest& manifest) {
  const RecordFormat& format = manifest.format;
  return format_versions() + format_layout(format.layout()) +
         fmt::format(
             "layout_digest {}\nalignment {}\nheader_bytes {}\nrecord_bytes {}\nslot_count {}\n"
             "life {}\n",
             to_hex(format.layout_digest()), format.alignment(), format.header_bytes(),
             format.record_bytes(), manifest.slot_count, manifest.life);
}

Result<NvmeManifest> parse_manifest(std::string_view text) {
  const std::string versions = format_versions();
  if (!text.starts_with(versions)) {
    if (!text.starts_with(kName)) return damaged();
    return fail(Code::unsupported, "terrace.manifest was written by another version of Terrace");
  }
  const std::size_t end = text.find("layout_digest ");
  if (end == std::string_view::npos) return damaged();
  const auto layout = parse_layout(text.substr(versions.size(), end - versions.size()));
  if (!layout && layout.error().code == Code::unsupported) return unexpected(layout.error());
  if (!layout) return damaged();
  const std::uint32_t alignment = number_of(text, "\nalignment ");
  if (!std::has_single_bit(alignment) || alignment < kAlignmentMin || alignment > kAlignmentMax) {
    return damaged();
  }
  NvmeManifest manifest{RecordFormat(*layout, alignment), number_of(text, "\nslot_count "),
                        number_of(text, "\nlife ")};
  if (format_manifest(manifest) != text) return damaged();
  return manifest;
}

}  // namespace terrace::internal
