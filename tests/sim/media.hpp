// What is on one drive: outlives the device, the cache and the crash.
//
// A write becomes durable with the next sync; until then a power cut may take it, whole or sector by
// sector, and in any order.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/random.hpp"

namespace terrace::sim {

inline constexpr std::uint32_t kSectorBytes = 4096;
using Sector = std::array<std::byte, kSectorBytes>;

class Media {
 public:
  std::uint64_t size_bytes() const { return bytes_.size(); }
  // What is cut off is lost, what is added is zeros.
  void resize(std::uint64_t bytes);
  // Somebody has shortened the file, behind everybody's back.
  void cut(std::uint64_t bytes);
  bool holds(std::uint64_t offset, std::uint64_t bytes) const { return offset + bytes <= end_; }

  // REQUIRES: inside size_bytes(), and whole sectors.
  std::span<const std::byte> at(std::uint64_t offset, std::uint64_t bytes) const {
    return std::span(bytes_).subspan(offset, bytes);
  }
  // `write` numbers the request that the sector belongs to.
  void write_sector(std::uint64_t offset, const std::byte* data, std::uint64_t write);
  void sync() { sync_through(landed_); }
  // How many sectors were written so far, and making just the first so many of them durable.
  std::uint64_t landed() const { return landed_; }
  void sync_through(std::uint64_t landed);
  bool all_durable() const { return unsynced_.empty(); }
  void lose_power(Random& random);
  void flip_bit(Random& random);

 private:
  struct Unsynced {
    std::uint64_t offset;
    std::uint64_t write;
    std::uint64_t number;  // in the order of completion
    Sector bytes;
  };

  std::vector<std::byte> bytes_;    // as a read sees it
  std::vector<std::byte> durable_;  // as of the last sync
  std::vector<Unsynced> unsynced_;  // in the order of completion
  std::uint64_t landed_ = 0;
  std::uint64_t end_ = 0;  // of the file
};

}  // namespace terrace::sim
