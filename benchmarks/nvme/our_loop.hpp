// Our side: the transfers of the cache (lib/move/nvme_transfers.cpp), driven as its pump drives them,
// between slots of a DRAM tier and of an NVMe tier. What is missing is what else a pump does: copies
// to HBM, and the index.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/held_clock.hpp"
#include "io/system_clock.hpp"
#include "io/waker.hpp"
#include "move/nvme_transfers.hpp"

namespace terrace::bench {

class OurLoop {
 public:
  enum class Work : std::uint8_t {
    read,           // trusts the drive
    read_verified,  // as the cache reads
    write,          // as the cache writes: sealed
    write_unsealed,
  };

  // Puts one block into each slot of the NVMe tier, to be written before it is read.
  // REQUIRES: tiers.dram and tiers.nvme, which outlive this.
  explicit OurLoop(internal::Tiers& tiers);

  // The slots of DRAM, in the order in which they are used, round and round.
  const std::vector<std::byte*>& memory() const { return memory_; }

  // For what run() does from here on: runs of `run_blocks` blocks, `depth` requests in flight.
  // REQUIRES: DRAM has 2 * depth * run_blocks slots; the device takes `depth` requests.
  void prepare(Work work, std::uint32_t depth, std::uint32_t run_blocks);
  // Moves the blocks of the runs that start at `first_slots`, in this order. REQUIRES: prepare().
  // Throws std::runtime_error where a request fails or a record does not verify.
  void run(std::span<const std::uint32_t> first_slots);

 private:
  bool start_some();
  void warm() const;
  void start_run(std::uint32_t first_slot);
  void start(internal::BlockId block, std::uint32_t slot);
  void end(std::uint32_t index);

  internal::Tiers& tiers_;
  internal::SystemClock clock_;
  internal::HeldClock time_{clock_};
  internal::Waker waker_;
  std::vector<TokenId> tokens_;
  internal::BlockStore store_;  // block i is in slot i of NVMe
  std::vector<std::byte*> memory_;
  std::vector<internal::BlockId> in_dram_;  // by slot of DRAM: who came there last
  std::vector<std::uint32_t> slots_;        // scratch

  // Of the run in progress.
  std::optional<internal::NvmeTransfers> transfers_;
  internal::Transfer::Step step_ = internal::Transfer::Step::idle;
  std::span<const std::uint32_t> first_slots_;
  std::uint32_t run_blocks_ = 1;
  std::uint32_t started_max_ = 0;
  std::uint32_t started_ = 0;
  std::size_t next_ = 0;
  std::size_t ended_ = 0;
};

}  // namespace terrace::bench
