// Leases: the right to use slots of the cache's HBM arena.
//
// ReadLease   a prefix from token 0: its blocks stay where they are while it is held. Const,
// complete, never pending. WriteLease  slots for the blocks to compute next: yours alone, invisible
// to others until commit(). Both return their slots when destroyed. Kernels that may still run then
// are named by release(after): slots are free only when that point has passed.
// Thread rule: one thread at a time for each lease.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "terrace/io.hpp"
#include "terrace/key.hpp"

namespace terrace {

namespace internal {
class Core;
}

// A slot in an arena. `index` is what a paged-attention kernel takes as its block table entry.
struct Slot {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // grows each time the slot is given out
};

// Where a chain stands: enough to name the next block.
struct Prefix {
  ChainPoint root;
  ChainPoint tip;
  std::uint32_t blocks = 0;
};

class ReadLease {
 public:
  ReadLease() = default;
  ReadLease(ReadLease&&) noexcept;
  ReadLease& operator=(ReadLease&&) noexcept;
  ~ReadLease();

  std::span<const Slot> slots() const noexcept {
    return slots_;
  }  // block i of the sequence is in slots()[i]
  const Prefix& prefix() const noexcept { return prefix_; }
  bool valid() const noexcept { return core_ != nullptr; }
  // Gives the slots back once `after` has passed; the lease is empty at once.
  void release(StreamPoint after = {});

 private:
  friend class internal::Core;
  std::shared_ptr<internal::Core> core_;
  Prefix prefix_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> blocks_;  // block of each slot, or none: a private copy
};

class WriteLease {
 public:
  WriteLease() = default;
  WriteLease(WriteLease&&) noexcept;
  WriteLease& operator=(WriteLease&&) noexcept;
  ~WriteLease();

  std::span<const Slot> slots() const noexcept { return slots_; }
  // Gives back what was not committed, once `after` has passed.
  void release(StreamPoint after = {});

 private:
  friend class internal::Core;
  std::shared_ptr<internal::Core> core_;
  std::vector<Slot> slots_;
};

}  // namespace terrace
