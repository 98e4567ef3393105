// SHA-256, plain and over named fields.
//
// The encoding of a field is  u32 tag length | tag | u8 present | u64 value length | value
// (little-endian; an absent field ends after `present` = 0). So no two different lists of fields
// have one encoding: a value cannot pose as its neighbour, and absent differs from empty.
//
// Must never hash an address, a locale-dependent text or a struct's padding. Called by: identity,
// layout, key.
// Thread rule: an object belongs to one thread; the free functions are pure.
#pragma once

#include <openssl/sha.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "terrace/identity.hpp"

namespace terrace::internal {

// SHA-256 in steps, in place: allocates nothing, and cannot fail.
class Sha256 {
 public:
  Sha256() noexcept;
  void update(std::span<const std::byte> bytes) noexcept;
  Digest finish() noexcept;  // once

 private:
  SHA256_CTX state_;
};

// Hash of a list of named fields under a domain name, which says what the list is and in which
// version.
class TaggedHash {
 public:
  explicit TaggedHash(std::string_view domain) { put("domain", domain); }

  TaggedHash& put(std::string_view tag, std::span<const std::byte> value);
  TaggedHash& put(std::string_view tag, std::string_view value) {
    return put(tag, std::as_bytes(std::span(value)));
  }
  TaggedHash& put(std::string_view tag, const Digest& value) {
    return put(tag, std::span<const std::byte>(value));
  }
  template <std::unsigned_integral Number>  // always eight bytes, so that a wider type later
                                            // changes no hash
  TaggedHash& put(std::string_view tag, Number value) {
    return put_number(tag, value);
  }
  template <class T>
  TaggedHash& put(std::string_view tag, const std::optional<T>& value) {
    return value ? put(tag, *value) : put_absent(tag);
  }

  Digest finish() { return hash_.finish(); }

 private:
  TaggedHash& put_number(std::string_view tag, std::uint64_t value);
  TaggedHash& put_absent(std::string_view tag);
  void put_tag(std::string_view tag, bool present);

  Sha256 hash_;
};

}  // namespace terrace::internal
