// The roots of the chains in a block table, each kept once: most blocks share a handful.
// Thread rule: one caller at a time, except that a root in use may be read from anywhere: it stays
// where it is, in pieces that never move.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/assert.hpp"
#include "base/same_bytes.hpp"
#include "terrace/key.hpp"

namespace terrace::internal {

class RootTable {
 public:
  explicit RootTable(std::uint32_t capacity) : pieces_(capacity / kPieceRoots + 1) {}

  const Digest& operator[](std::uint32_t index) const noexcept { return at(index).digest; }

  // Counts one more user of `digest`. Returns: its index.
  std::uint32_t acquire(const Digest& digest) {
    const auto [found, is_new] = index_.try_emplace(digest, kNone);
    if (is_new) found->second = add(digest);
    ++at(found->second).users;
    return found->second;
  }

  void release(std::uint32_t index) noexcept {
    Root& root = at(index);
    TERRACE_ASSERT(root.users > 0, index);
    if (--root.users > 0) return;
    index_.erase(root.digest);
    root.next_free = free_;
    free_ = index;
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  static constexpr std::uint32_t kPieceRoots = 1024;
  struct Root {
    Digest digest{};
    std::uint32_t users = 0;
    std::uint32_t next_free = kNone;
  };
  using Piece = std::array<Root, kPieceRoots>;
  struct Hash {
    std::size_t operator()(const Digest& digest) const noexcept {
      std::size_t value;
      std::memcpy(&value, digest.data(), sizeof value);  // a SHA-256 is uniform already
      return value;
    }
  };

  std::uint32_t add(const Digest& digest) {
    std::uint32_t index = free_;
    if (index != kNone) {
      free_ = at(index).next_free;
    } else {
      index = count_++;
      auto& piece = pieces_[index / kPieceRoots];
      if (piece == nullptr) piece = std::make_unique<Piece>();
    }
    at(index) = {digest};
    return index;
  }

  Root& at(std::uint32_t index) const noexcept {
    return (*pieces_[index / kPieceRoots])[index % kPieceRoots];
  }

  std::vector<std::unique_ptr<Piece>> pieces_;  // sized once
  std::uint32_t count_ = 0;
  std::unordered_map<Digest, std::uint32_t, Hash, SameBytes> index_;
  std::uint32_t free_ = kNone;
};

}  // namespace terrace::internal
