// Whether two digests are equal, eight bytes at a time: the comparison of std::array<std::byte, 32>
// is a loop over bytes, which a lookup or an insertion in a table notices.
// Thread rule: pure.
#pragma once

#include <cstring>

#include "terrace/key.hpp"

namespace terrace::internal {

struct SameBytes {
  bool operator()(const Digest& a, const Digest& b) const noexcept {
    return std::memcmp(a.data(), b.data(), a.size()) == 0;
  }
};

inline bool same_bytes(const Digest& a, const Digest& b) noexcept {
  return SameBytes{}(a, b);
}

}  // namespace terrace::internal
