// The roots of the chains in a block table, each kept once: most blocks share a handful.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/assert.hpp"
#include "terrace/key.hpp"

namespace terrace::internal {

class RootTable {
 public:
  const Digest& operator[](std::uint32_t index) const noexcept { return roots_[index].digest; }

  // Counts one more user of `digest`. Returns: its index.
  std::uint32_t acquire(const Digest& digest) {
    const auto [found, is_new] = index_.try_emplace(digest, kNone);
    if (is_new) found->second = add(digest);
    ++roots_[found->second].users;
    return found->second;
  }

  void release(std::uint32_t index) noexcept {
    Root& root = roots_[index];
    TERRACE_ASSERT(root.users > 0, index);
    if (--root.users > 0) return;
    index_.erase(root.digest);
    root.next_free = free_;
    free_ = index;
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  struct Root {
    Digest digest{};
    std::uint32_t users = 0;
    std::uint32_t next_free = kNone;
  };
  struct Hash {
    std::size_t operator()(const Digest& digest) const noexcept {
      std::size_t value;
      std::memcpy(&value, digest.data(), sizeof value);  // a SHA-256 is uniform already
      return value;
    }
  };

  std::uint32_t add(const Digest& digest) {
    if (free_ == kNone) {
      roots_.push_back({digest});
      return static_cast<std::uint32_t>(roots_.size() - 1);
    }
    const std::uint32_t index = free_;
    free_ = roots_[index].next_free;
    roots_[index] = {digest};
    return index;
  }

  std::vector<Root> roots_;
  std::unordered_map<Digest, std::uint32_t, Hash> index_;
  std::uint32_t free_ = kNone;
};

}  // namespace terrace::internal
