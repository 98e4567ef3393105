// Our side: records through the device of an NvmeStore, to and from slots of a DRAM arena, in the
// order in which lib/move/nvme_transfers.cpp works: a completed request is replaced before it is
// verified, records are sealed as they are submitted, and two requests a queue place have memory.
// The wait is the pump's, too: Waker, over the device's descriptor.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "io/host_memory.hpp"
#include "io/waker.hpp"
#include "tier/nvme_store.hpp"

namespace terrace::bench {

// The block that belongs into each slot, so that any record read can be verified in full.
class Blocks {
 public:
  Blocks(const Layout& layout, std::uint32_t count);
  const internal::RecordMeta& operator[](std::uint32_t slot) const { return metas_[slot]; }

 private:
  std::vector<TokenId> tokens_;
  std::vector<internal::RecordMeta> metas_;
};

class OurLoop {
 public:
  enum class Work : std::uint8_t {
    read,
    read_verified,
    write,           // sealed, as the mover does
    write_unsealed,  // as it lies: for the CPU of everything but hashing
  };

  // Scatters the slots of `arena` over the lanes of each run(), as blocks of a prefix lie in DRAM.
  // All outlive this.
  OurLoop(internal::NvmeStore& store, const internal::RecordFormat& format, const Blocks& blocks,
          std::span<std::byte> arena);

  // The slots of the lanes at `depth`, in the order of their first use.
  std::vector<std::byte*> slots(std::uint32_t depth) const {
    return {arena_.begin(), arena_.begin() + std::ptrdiff_t{2} * depth};
  }

  // Moves runs of `run_blocks` records in consecutive slots, `depth` requests at a time, in the
  // order of `first_slots`.
  // REQUIRES: the arena has 2 * depth * run_blocks slots; the device takes `depth` requests.
  // Throws std::runtime_error where a request fails or a record does not verify.
  void run(Work work, std::span<const std::uint32_t> first_slots, std::uint32_t depth,
           std::uint32_t run_blocks);

 private:
  struct Lane {
    std::vector<std::byte*> records;  // of the run, in its order
    std::uint32_t first_slot = 0;
  };

  void make_lanes(std::uint32_t count, std::uint32_t run_blocks);
  void submit(std::uint32_t depth);
  void fill_portion(std::uint32_t depth);
  IoRequest request_of(std::uint32_t lane);
  std::size_t reap();
  void retire(std::uint32_t lane) const;
  bool writes() const { return work_ == Work::write || work_ == Work::write_unsealed; }

  internal::NvmeStore& store_;
  const internal::RecordFormat& format_;
  const Blocks& blocks_;
  internal::Waker waker_;
  std::vector<std::byte*> arena_;  // its slots, scattered

  Work work_ = Work::read;
  std::span<const std::uint32_t> first_slots_;
  std::size_t next_ = 0;
  std::vector<Lane> lanes_;
  std::deque<std::uint32_t>
      free_;  // the one idle for longest first: a cache uses all of its memory
  std::vector<std::uint32_t> completed_;
  std::vector<IoRequest> requests_;
  std::vector<IoPiece> pieces_;
};

}  // namespace terrace::bench
