// Fuzzes the parser of records: bytes from a disk that anyone may have written.
//
// Mode 0 gives the input to the parser as it is. Mode 1 makes its digest right first, as an
// attacker would, so that the checks behind the digest are reached. Mode 2 damages a sealed record,
// and checks that no change of it is ever believed.
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "index/record.hpp"

namespace {

using namespace terrace;
using namespace terrace::internal;

constexpr std::uint32_t kBlockTokens = 4;

void require(bool condition) {
  if (!condition) std::abort();
}

const RecordFormat& format() {
  static const RecordFormat instance(Layout::full(2, 1, 8, KvDtype::f32, kBlockTokens), 512);
  return instance;
}

void make_digest_right(std::span<std::byte> bytes) {
  if (bytes.size() < kRecordHeaderBytes) return;
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::uint64_t tail_bytes =
      std::uint64_t{header.token_count} * 4 + std::uint64_t{header.segment_count} * 8;
  if (tail_bytes > bytes.size() - kRecordHeaderBytes) return;
  const XXH128_hash_t tail = XXH3_128bits(bytes.data() + kRecordHeaderBytes, tail_bytes);
  header.header_digest[0] = tail.low64;
  header.header_digest[1] = tail.high64;
  const XXH128_hash_t digest = XXH3_128bits(&header, sizeof header);
  header.header_digest[0] = digest.low64;
  header.header_digest[1] = digest.high64;
  std::memcpy(bytes.data(), &header, sizeof header);
}

void parse(std::span<const std::byte> bytes) {
  RecordMeta meta;
  meta.depth = 77;
  if (format().parse(bytes, meta) != Verdict::good) {
    require(meta.depth == 77 && meta.tokens.empty());
    return;
  }
  require(meta.tokens.size() >= 1 && meta.tokens.size() <= kBlockTokens);
  const auto* begin = reinterpret_cast<const std::byte*>(meta.tokens.data());
  require(begin >= bytes.data() && begin + meta.tokens.size_bytes() <= bytes.data() + bytes.size());
}

struct Sealed {
  std::vector<TokenId> tokens = std::vector<TokenId>(kBlockTokens, 5);
  RecordMeta meta;
  std::vector<std::byte> bytes = std::vector<std::byte>(format().record_bytes(), std::byte{0x5a});
  Sealed() {
    meta.tokens = tokens;
    meta.self = chain_next({}, tokens);
    format().seal(bytes, meta);
  }
};

// `edits`: triples of an offset, in two bytes, and a mask.
void xor_into(std::span<const std::uint8_t> edits, std::span<std::byte> bytes) {
  for (; edits.size() >= 3; edits = edits.subspan(3)) {
    bytes[(edits[0] + 256u * edits[1]) % bytes.size()] ^= std::byte{edits[2]};
  }
}

void parse_forged(std::span<const std::uint8_t> edits) {
  Sealed record;
  record.bytes.resize(format().entry_bytes());
  xor_into(edits, record.bytes);
  make_digest_right(record.bytes);
  parse(record.bytes);
}

void verify_damaged(std::span<const std::uint8_t> edits) {
  const Sealed sealed;
  std::vector<std::byte> bytes = sealed.bytes;
  require(format().verify(bytes, sealed.meta) == Verdict::good);
  xor_into(edits, bytes);
  // Zeros that fill up to the alignment carry nothing; everything else is covered by a digest.
  const auto equal = [&](std::uint64_t offset, std::uint64_t count) {
    return std::memcmp(sealed.bytes.data() + offset, bytes.data() + offset, count) == 0;
  };
  const bool same =
      equal(0, format().entry_bytes()) && equal(format().header_bytes(), format().payload_bytes());
  require((format().verify(bytes, sealed.meta) == Verdict::good) == same);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span input(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0: {
      // Exactly as long as the input, so that a read behind its end is seen; aligned as parse()
      // asks.
      std::vector<std::byte> bytes(input.size());
      std::ranges::copy(std::as_bytes(input), bytes.begin());
      parse(bytes);
      break;
    }
    case 1:
      parse_forged(input);
      break;
    default:
      verify_damaged(input);
  }
  return 0;
}
