// What a cache directory says of itself: terrace.manifest, text.
//
//   terrace-cache 3
//   record_format 1
//   block_tokens 16                  from here
//   dtype f32
//   order layer_kv_head_token_dim
//   group full_attention ...         to here the layout, as format_layout() writes it
//   layout_digest 9f3c...
//   alignment 4096
//   header_bytes 4096
//   record_bytes 200704
//   slot_count 20000
//   life 7                           how many caches have had the directory, this one included
//
// Whoever has the file can read the records. All but slot count and life follows from the layout and
// the alignment, and is written again and compared when read. Must never change without a new version
// in its first line. Called by: NvmeDirectory, NvmeReader.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "index/record.hpp"
#include "terrace/result.hpp"

namespace terrace::internal {

inline constexpr std::uint32_t kManifestVersion = 3;

struct NvmeManifest {
  RecordFormat format;
  std::uint32_t slot_count = 0;
  std::uint32_t life = 0;
};
// A record's sequence number: the life it was written in from this bit on, a count below.
inline constexpr std::uint32_t kLifeShift = 40;

std::string format_manifest(const NvmeManifest& manifest);
// Returns: the manifest of which format_manifest() makes exactly `text`; unsupported (written by
// another version); corrupt.
Result<NvmeManifest> parse_manifest(std::string_view text);

// The most that the manifest grows by with another group in the layout: the length of its line.
inline constexpr std::uint64_t kManifestBytesPerGroup = 96;

}  // namespace terrace::internal
