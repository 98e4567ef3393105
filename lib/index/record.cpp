// See record.hpp.
#include "index/record.hpp"

// The headers of xxHash differ in which one defines what: the dispatching one picks AVX-512, AVX2
// or SSE2 when the program runs (65 instead of 16 GB/s on a development machine), and exists on x86
// alone.
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/assert.hpp"

namespace terrace::internal {
namespace {

static_assert(std::endian::native == std::endian::little,
              "records are little-endian and are copied as they lie");
static_assert(sizeof(RecordHeader) == kRecordHeaderBytes &&
              std::is_trivially_copyable_v<RecordHeader>);
static_assert(std::has_unique_object_representations_v<RecordHeader>,
              "padding would be written unset");
static_assert(offsetof(RecordHeader, flags) == 16 && offsetof(RecordHeader, epoch) == 24);
static_assert(offsetof(RecordHeader, layout_digest) == 48 && offsetof(RecordHeader, root) == 80);
static_assert(offsetof(RecordHeader, key) == 112 && offsetof(RecordHeader, lineage) == 128);
static_assert(offsetof(RecordHeader, parent_key) == 160 &&
              offsetof(RecordHeader, parent_lineage) == 176);
static_assert(offsetof(RecordHeader, depth) == 208 && offsetof(RecordHeader, payload_bytes) == 224);
static_assert(offsetof(RecordHeader, layers_from) == 240 &&
              offsetof(RecordHeader, authentication) == 264);
static_assert(offsetof(RecordHeader, header_digest) == 280);

constexpr std::uint64_t kMagic = 0x5245'4341'5252'4554;  // "TERRACER" in memory
constexpr std::uint32_t kSegmentsMax = 1U << 16;         // as Layout::validate
constexpr std::uint32_t kTokensMax = 4096;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

std::uint64_t entry_size(std::uint64_t tokens, std::uint64_t segments) noexcept {
  return kRecordHeaderBytes + tokens * sizeof(TokenId) + segments * sizeof(std::uint64_t);
}

// In two steps, so that two plain calls do: first what follows the header, then the header with
// that in its place.
XXH128_hash_t entry_digest(RecordHeader header, std::span<const std::byte> entry) noexcept {
  const std::span<const std::byte> tail = entry.subspan(kRecordHeaderBytes);
  const XXH128_hash_t tail_digest = XXH3_128bits(tail.data(), tail.size());
  header.header_digest[0] = tail_digest.low64;
  header.header_digest[1] = tail_digest.high64;
  return XXH3_128bits(&header, sizeof header);
}

// Where the table of layer digests starts; 4-byte aligned at best, so it is read by memcpy.
std::size_t table_offset(std::uint64_t tokens) noexcept {
  return entry_size(tokens, 0);
}

std::span<const TokenId> tokens_of(std::span<const std::byte> entry, std::uint32_t count) noexcept {
  return {reinterpret_cast<const TokenId*>(entry.data() + kRecordHeaderBytes), count};
}

}  // namespace

const char* to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::good:
      return "good";
    case Verdict::not_a_record:
      return "not_a_record";
    case Verdict::unknown_format:
      return "unknown_format";
    case Verdict::header_damaged:
      return "header_damaged";
    case Verdict::layout_differs:
      return "layout_differs";
    case Verdict::other_block:
      return "other_block";
    case Verdict::payload_damaged:
      return "payload_damaged";
  }
  return "unknown";
}

RecordFormat::RecordFormat(const Layout& layout, std::uint32_t alignment)
    : layout_(layout),
      layout_digest_(layout.layout_digest()),
      kv_heads_(0),
      alignment_(alignment),
      payload_bytes_(layout.block_bytes()) {
  TERRACE_ASSERT(std::has_single_bit(alignment) && alignment >= alignof(TokenId), alignment);
  TERRACE_ASSERT(layout.validate().has_value(), payload_bytes_);
  for (std::uint32_t i = 0; i < layout.layer_count(); ++i) layers_.push_back(layout.layer_slice(i));
  for (const Group& group : layout.groups) kv_heads_ = std::max(kv_heads_, group.kv_heads);
  entry_bytes_ = static_cast<std::uint32_t>(entry_size(layout_.block_tokens, layers_.size()));
  header_bytes_ = static_cast<std::uint32_t>(round_up(entry_bytes_, alignment));
  record_bytes_ = header_bytes_ + round_up(payload_bytes_, alignment);
}

RecordHeader RecordFormat::describe(const RecordMeta& meta) const noexcept {
  RecordHeader header{};
  header.magic = kMagic;
  header.format_version = kRecordFormatVersion;
  header.kind = static_cast<std::uint16_t>(RecordKind::block);
  header.header_bytes = header_bytes_;
  header.key_space = static_cast<std::uint16_t>(KeySpace::content);
  header.codec = static_cast<std::uint16_t>(Codec::plain);
  header.incarnation = meta.incarnation;
  header.sequence = meta.sequence;
  header.layout_digest = layout_digest_;
  header.root = meta.root;
  header.key = meta.self.key;
  header.lineage = meta.self.lineage;
  header.parent_key = meta.parent.key;
  header.parent_lineage = meta.parent.lineage;
  header.depth = meta.depth;
  header.token_count = static_cast<std::uint32_t>(meta.tokens.size());
  header.segment_count = static_cast<std::uint32_t>(layers_.size());
  header.payload_bytes = payload_bytes_;
  header.stored_bytes = payload_bytes_;
  header.layers_count = static_cast<std::uint32_t>(layers_.size());
  header.heads_count = kv_heads_;
  header.stripe_count = 1;
  return header;
}

void RecordFormat::seal(std::span<std::byte> record, const RecordMeta& meta) const {
  TERRACE_ASSERT(record.size() == record_bytes_, record.size());
  TERRACE_ASSERT(!meta.tokens.empty() && meta.tokens.size() <= layout_.block_tokens,
                 meta.tokens.size());
  const std::span<std::byte> payload = record.subspan(header_bytes_);
  // The tokens may already stand there: a record is sealed again when it moves.
  std::memmove(record.data() + kRecordHeaderBytes, meta.tokens.data(), meta.tokens.size_bytes());
  std::byte* table = record.data() + table_offset(meta.tokens.size());
  for (const Slice& layer : layers_) {
    const std::uint64_t digest = XXH3_64bits(payload.data() + layer.offset, layer.bytes);
    std::memcpy(table, &digest, sizeof digest);
    table += sizeof digest;
  }
  const auto entry = record.first(entry_size(meta.tokens.size(), layers_.size()));
  std::ranges::fill(record.subspan(entry.size(), header_bytes_ - entry.size()), std::byte{0});
  std::ranges::fill(payload.subspan(payload_bytes_), std::byte{0});
  RecordHeader header = describe(meta);
  const XXH128_hash_t digest = entry_digest(header, entry);
  header.header_digest[0] = digest.low64;
  header.header_digest[1] = digest.high64;
  std::memcpy(record.data(), &header, sizeof header);
}

// Bounds come before the digest that needs them, the digest before anything that is believed.
Verdict RecordFormat::check_header(std::span<const std::byte> bytes, RecordHeader& header) const {
  if (bytes.size() < sizeof header.magic ||
      std::memcmp(bytes.data(), &kMagic, sizeof kMagic) != 0) {
    return Verdict::not_a_record;
  }
  if (bytes.size() < sizeof header) return Verdict::header_damaged;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.format_version != kRecordFormatVersion) return Verdict::unknown_format;
  if (header.token_count > kTokensMax || header.segment_count > kSegmentsMax)
    return Verdict::header_damaged;
  const std::uint64_t size = entry_size(header.token_count, header.segment_count);
  if (size > bytes.size()) return Verdict::header_damaged;
  const XXH128_hash_t digest = entry_digest(header, bytes.first(size));
  if (digest.low64 != header.header_digest[0] || digest.high64 != header.header_digest[1]) {
    return Verdict::header_damaged;
  }
  if (header.flags != 0 || header.kind != static_cast<std::uint16_t>(RecordKind::block) ||
      header.key_space != static_cast<std::uint16_t>(KeySpace::content) ||
      header.codec != static_cast<std::uint16_t>(Codec::plain)) {
    return Verdict::unknown_format;
  }
  return fits_layout(header) ? Verdict::good : Verdict::layout_differs;
}

bool RecordFormat::fits_layout(const RecordHeader& header) const noexcept {
  return header.layout_digest == layout_digest_ && header.header_bytes == header_bytes_ &&
         header.token_count >= 1 && header.token_count <= layout_.block_tokens &&
         header.group == 0 && header.segment_count == layers_.size() &&
         header.payload_bytes == payload_bytes_ && header.stored_bytes == payload_bytes_ &&
         header.layers_from == 0 && header.layers_count == layers_.size() &&
         header.heads_from == 0 && header.heads_count == kv_heads_ && header.stripe_index == 0 &&
         header.stripe_count == 1;
}

Verdict RecordFormat::parse(std::span<const std::byte> bytes, RecordMeta& meta) const {
  TERRACE_ASSERT(reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(TokenId) == 0,
                 bytes.size());
  RecordHeader header;
  const Verdict verdict = check_header(bytes, header);
  if (verdict != Verdict::good) return verdict;
  meta.root = header.root;
  meta.self = {header.key, header.lineage};
  meta.parent = {header.parent_key, header.parent_lineage};
  meta.depth = header.depth;
  meta.tokens = tokens_of(bytes, header.token_count);
  meta.incarnation = header.incarnation;
  meta.sequence = header.sequence;
  return Verdict::good;
}

Verdict RecordFormat::verify(std::span<const std::byte> record, const RecordMeta& expected) const {
  RecordMeta found;
  const Verdict verdict =
      parse(record.first(std::min<std::size_t>(record.size(), header_bytes_)), found);
  if (verdict != Verdict::good) return verdict;
  if (found.root != expected.root || found.self != expected.self ||
      found.parent != expected.parent || found.depth != expected.depth ||
      !std::ranges::equal(found.tokens, expected.tokens)) {
    return Verdict::other_block;
  }
  if (record.size() < header_bytes_ + payload_bytes_) return Verdict::payload_damaged;
  const std::byte* payload = record.data() + header_bytes_;
  const std::byte* table = record.data() + table_offset(found.tokens.size());
  for (const Slice& layer : layers_) {
    std::uint64_t digest;
    std::memcpy(&digest, table, sizeof digest);
    if (XXH3_64bits(payload + layer.offset, layer.bytes) != digest) return Verdict::payload_damaged;
    table += sizeof digest;
  }
  return Verdict::good;
}

}  // namespace terrace::internal
