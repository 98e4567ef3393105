// One block as bytes outside this process: the record. Documented byte by byte in ARCHITECTURE.md,
// "Bytes on disk".
//
//   [ RecordHeader | token ids, u32 each | layer digests, u64 each | zeros ][ payload | zeros ]
//    <------------------- entry ---------------------------------->
//    <------------------- header_bytes(), aligned ------------------------->
//    <------------------- record_bytes(), aligned --------------------------------------------->
//
// Self-delimiting, relocatable, little-endian. One parser for what comes from disk, network and
// index. A record is built in place: a DRAM slot has room for the header before the payload, so a
// write to NVMe copies nothing. The zeros keep stale memory off the disk; nobody reads them, and
// they are not verified. Must never trust a byte it reads. Called by: tiers, mover, cache.
// Thread rule: const use from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/key.hpp"
#include "terrace/layout.hpp"

namespace terrace::internal {

inline constexpr std::uint16_t kRecordFormatVersion = 1;

enum class RecordKind : std::uint16_t {
  block = 1,
  shard_fragment = 2,
  boundary_snapshot = 3,
  manifest = 4
};
enum class KeySpace : std::uint16_t { content = 1, foreign = 2 };
enum class Codec : std::uint16_t { plain = 1 };

// The first bytes of a record, as they lie on disk. Every field stands at its natural alignment, so
// that there is no padding whose bytes could differ between compilers; offsets are pinned in
// record.cpp.
struct RecordHeader {
  // What this is.
  std::uint64_t magic;           //   0  "TERRACER"
  std::uint16_t format_version;  //   8  kRecordFormatVersion; another one is refused
  std::uint16_t kind;            //  10  RecordKind
  std::uint32_t header_bytes;    //  12  where the payload starts, counted from the magic
  std::uint32_t flags;           //  16  none is known yet: any set bit means refuse
  std::uint16_t key_space;       //  20  KeySpace
  std::uint16_t codec;           //  22  Codec of the payload
  // Who wrote it, when.
  std::uint64_t epoch;        //  24  of the weights, for a live change of weights; 0 so far
  std::uint64_t incarnation;  //  32  of the writing cache
  std::uint64_t sequence;     //  40  grows with each record of a directory (nvme_manifest.hpp)
  // What it holds.
  Digest layout_digest;         //  48  Layout::layout_digest()
  Digest root;                  //  80  lineage of the chain's root: identity and scope
  BlockKey key;                 // 112  of the block; low word first
  Digest lineage;               // 128  of the block
  BlockKey parent_key;          // 160
  Digest parent_lineage;        // 176
  std::uint32_t depth;          // 208  blocks before it in its chain
  std::uint32_t token_count;    // 212  token ids that follow this header
  std::uint32_t group;          // 216  first group of the layout that the payload holds
  std::uint32_t segment_count;  // 220  layer digests that follow the token ids
  std::uint64_t payload_bytes;  // 224  as used
  std::uint64_t stored_bytes;   // 232  as stored: equal for Codec::plain
  // Which part of the block, for shards: a whole block is layers [0, all), heads [0, all), stripe 0
  // of 1.
  std::uint32_t layers_from;   // 240
  std::uint32_t layers_count;  // 244
  std::uint32_t heads_from;    // 248
  std::uint32_t heads_count;   // 252  of the widest group
  std::uint32_t stripe_index;  // 256
  std::uint32_t stripe_count;  // 260
  // Whether it is what was written.
  std::byte authentication[16];  // 264  reserved for a keyed tag; zeros
  // XXH3-128 over this header, in which this field holds the XXH3-128 of all that follows in the
  // entry: the token ids and the layer digests, of which each is the XXH3-64 of one layer.
  std::uint64_t header_digest[2];  // 280
};
inline constexpr std::size_t kRecordHeaderBytes = 296;

// What a record says of its block. Spans are borrowed.
struct RecordMeta {
  Digest root{};    // lineage of the chain's root: who computed it, for whom
  ChainPoint self;  // key and lineage
  ChainPoint parent;
  std::uint32_t depth = 0;  // blocks before it in its chain
  std::span<const TokenId> tokens;
  std::uint64_t incarnation = 0;  // of the writing cache
  std::uint64_t sequence = 0;     // grows with each record of a directory
};

// Why a record was refused; `good` is the only value with which its bytes may be used.
enum class Verdict : std::uint8_t {
  good,
  not_a_record,     // no magic: never written, or foreign bytes
  unknown_format,   // another format version, or a flag, kind, key space or codec that this version
                    // does not know
  header_damaged,   // header digest or bounds wrong: torn or flipped
  layout_differs,   // written under another layout
  other_block,      // intact, but of another block: stale index or misdirected write
  payload_damaged,  // a layer's digest differs, or the record is cut short
};
const char* to_string(Verdict verdict) noexcept;

// Sizes and codec of the records of one layout.
class RecordFormat {
 public:
  // REQUIRES: layout.validate(); alignment is a power of two, at least 4.
  RecordFormat(const Layout& layout, std::uint32_t alignment);

  // Where the payload starts: a multiple of the alignment.
  std::uint32_t header_bytes() const noexcept { return header_bytes_; }
  // Layout::block_bytes().
  std::uint64_t payload_bytes() const noexcept { return payload_bytes_; }
  // The stride of slots: a multiple of the alignment.
  std::uint64_t record_bytes() const noexcept { return record_bytes_; }
  // The header of a full block without the zeros: what the index keeps.
  std::uint32_t entry_bytes() const noexcept { return entry_bytes_; }
  std::uint32_t alignment() const noexcept { return alignment_; }
  const Layout& layout() const noexcept { return layout_; }
  const Digest& layout_digest() const noexcept { return layout_digest_; }

  // Writes the header in front of the payload that stands in `record`, with the digest of each
  // layer.
  // REQUIRES: record is record_bytes() long; 1 to block_tokens tokens.
  void seal(std::span<std::byte> record, const RecordMeta& meta) const;

  // Whether `record` is intact and is the block `expected`: root, self, parent, depth and tokens
  // are compared, in full; incarnation and sequence are not, since one block may be written twice.
  // REQUIRES: record.data() is 4-byte aligned.
  Verdict verify(std::span<const std::byte> record, const RecordMeta& expected) const;

  // Reads a header alone: the first entry_bytes() of a record, or more. Safe for any bytes of any
  // length.
  // REQUIRES: header.data() is 4-byte aligned, since `meta.tokens` points into it.
  // Returns: good, and fills `meta`; anything else, and leaves it.
  Verdict parse(std::span<const std::byte> header, RecordMeta& meta) const;

 private:
  RecordHeader describe(const RecordMeta& meta) const noexcept;
  Verdict check_header(std::span<const std::byte> bytes, RecordHeader& header) const;
  bool fits_layout(const RecordHeader& header) const noexcept;

  Layout layout_;
  std::vector<Slice> layers_;
  Digest layout_digest_;
  std::uint32_t kv_heads_;
  std::uint32_t alignment_;
  std::uint32_t entry_bytes_;
  std::uint32_t header_bytes_;
  std::uint64_t payload_bytes_;
  std::uint64_t record_bytes_;
};

}  // namespace terrace::internal
