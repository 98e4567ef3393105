// Which blocks a key may name: a hash table from keys to small numbers, which knows of a key what a
// cache line can hold.
//
// A line has twelve slots, each with a tag of eight bits of the key, and counts the entries that found
// it full and went past it, so that a lookup ends where none did and an erasure leaves nothing behind
// (as F14: Bronson and Shi, "Open-sourcing F14 for faster, more memory-efficient hash tables", 2019).
// Finding, inserting and erasing each touch one line, nearly always, and nobody follows a link.
//
// One key may lead to several numbers, and a tag to those of other keys: who looks one up says which
// it is.
// Thread rule: one caller at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/assert.hpp"
#include "base/prefetch.hpp"
#include "io/huge_vector.hpp"
#include "terrace/key.hpp"

namespace terrace::internal {

class KeyTable {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  // For at most `capacity` numbers at a time: eight bytes each.
  explicit KeyTable(std::uint32_t capacity) : lines_(capacity / kLineSlotsUsed + 1) {}

  // Returns: the number under `key` of which is_it(id) says so; kNone. It is asked about those of some
  // other keys, too.
  template <class IsIt>
  std::uint32_t find(const BlockKey& key, const IsIt& is_it) const noexcept {
    const std::uint8_t tag = tag_of(key);
    std::size_t at = home_of(key);
    // Entries may have gone past every line there is.
    for (std::size_t looked = 0; looked < lines_.size(); ++looked, at = after(at)) {
      const Line& line = lines_[at];
      for (std::uint32_t hits = line.slots_with(tag); hits != 0; hits &= hits - 1) {
        const std::uint32_t id = line.ids[first_of(hits)];
        if (is_it(id)) return id;
      }
      if (line.passed == 0) break;
    }
    return kNone;
  }

  void insert(const BlockKey& key, std::uint32_t id) noexcept {
    std::size_t at = home_of(key);
    std::uint32_t free = lines_[at].slots_with(kFree);
    while (free == 0) {
      ++lines_[at].passed;
      at = after(at);
      free = lines_[at].slots_with(kFree);
    }
    lines_[at].tags[first_of(free)] = tag_of(key);
    lines_[at].ids[first_of(free)] = id;
  }

  // REQUIRES: insert(key, id), and no erase() of it since.
  void erase(const BlockKey& key, std::uint32_t id) noexcept {
    const std::uint8_t tag = tag_of(key);
    for (std::size_t at = home_of(key);; at = after(at)) {
      Line& line = lines_[at];
      for (std::uint32_t hits = line.slots_with(tag); hits != 0; hits &= hits - 1) {
        if (line.ids[first_of(hits)] != id) continue;
        line.tags[first_of(hits)] = kFree;
        return;
      }
      TERRACE_ASSERT(line.passed > 0, id);
      --line.passed;
    }
  }

  // Asks for the memory that the others read first.
  void prefetch(const BlockKey& key) const noexcept { prefetch_line(&lines_[home_of(key)]); }

 private:
  static constexpr std::uint32_t kLineSlots = 12;
  static constexpr std::uint32_t kLineSlotsUsed = 8;  // of a full table, on average
  static constexpr std::uint8_t kFree = 0;
  static constexpr std::uint64_t kEachByte = 0x0101010101010101u;

  struct alignas(64) Line {
    std::array<std::uint8_t, kLineSlots> tags{};
    std::uint32_t passed = 0;  // entries that found it full
    std::array<std::uint32_t, kLineSlots> ids{};

    // Returns: bit i for each slot i with this tag.
    std::uint32_t slots_with(std::uint8_t tag) const noexcept {
      std::array<std::uint64_t, 2> words;  // the tags, and what comes after
      std::memcpy(words.data(), this, sizeof words);
      const std::uint64_t wanted = kEachByte * tag;
      const std::uint32_t found = zero_bytes(words[0] ^ wanted) | zero_bytes(words[1] ^ wanted)
                                                                      << 8;
      return found & ((1u << kLineSlots) - 1);
    }
  };
  static_assert(sizeof(Line) == 64 && std::is_trivially_copyable_v<Line>);
  static_assert(std::endian::native == std::endian::little, "a word's first byte is its lowest");

  // Returns: bit i for each byte i that is zero. (Warren, "Hacker's Delight", 6-1: exact, no borrow
  // reaches the next byte; then the product brings the top bit of each byte into the highest byte.)
  static std::uint32_t zero_bytes(std::uint64_t word) noexcept {
    constexpr std::uint64_t kLowBits = 0x7f * kEachByte;
    const std::uint64_t tops = ~(((word & kLowBits) + kLowBits) | word | kLowBits);
    return static_cast<std::uint32_t>(((tops >> 7) * 0x0102040810204080u) >> 56);
  }

  static unsigned first_of(std::uint32_t slots) noexcept {
    return static_cast<unsigned>(std::countr_zero(slots));
  }
  // From other bits than the tag, so that each says something of its own. (Lemire, "Fast random integer
  // generation in an interval", 2019: a product for a remainder.)
  std::size_t home_of(const BlockKey& key) const noexcept {
    return ((key.low >> 32) * lines_.size()) >> 32;
  }
  static std::uint8_t tag_of(const BlockKey& key) noexcept {
    const auto tag = static_cast<std::uint8_t>(key.low);
    return tag == kFree ? 1 : tag;
  }
  std::size_t after(std::size_t at) const noexcept { return at + 1 < lines_.size() ? at + 1 : 0; }

  HugeVector<Line> lines_;
};

}  // namespace terrace::internal
