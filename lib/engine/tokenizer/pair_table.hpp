// A hash table from a pair of token ids to a small value, for the inner loop of byte-pair encoding:
// flat, a power of two of slots at most half full, linear probing, so that a look-up is one cache
// line as a rule. Grows only, forgets nothing. Filled by one thread while a tokenizer is loaded;
// const use from any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace terrace::engine {

template <class Value>
class PairTable {
 public:
  // REQUIRES: not both ids are the largest one there is; that pair marks an empty slot.
  void insert_or_assign(std::uint32_t left, std::uint32_t right, Value value) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[place_of(key_of(left, right))];
    count_ += slot.key == empty;
    slot = {key_of(left, right), value};
  }

  // Null where the pair is not there.
  const Value* find(std::uint32_t left, std::uint32_t right) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[place_of(key_of(left, right))];
    return slot.key == empty ? nullptr : &slot.value;
  }

 private:
  static constexpr std::uint64_t empty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = empty;
    Value value{};
  };

  static std::uint64_t key_of(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t{left} << 32 | right;
  }

  // The slot that holds `key`, or the empty one where it belongs.
  std::size_t place_of(std::uint64_t key) const {
    const std::uint64_t mixed = key * 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio
    std::size_t place = (mixed >> 32 ^ mixed) & (slots_.size() - 1);
    while (slots_[place].key != key && slots_[place].key != empty) {
      place = (place + 1) & (slots_.size() - 1);
    }
    return place;
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != empty) slots_[place_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace terrace::engine
