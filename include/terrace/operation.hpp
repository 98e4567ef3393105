// Operations: caller-owned, never blocking, completed only inside poll() (or by the driver thread),
// exactly once.
//
// An operation may be destroyed at any time: that cancels it, and what it holds is given back when
// it is safe.
// Thread rule: done() from any thread; everything else from one thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "terrace/events.hpp"
#include "terrace/lease.hpp"
#include "terrace/result.hpp"

namespace terrace {

namespace internal {
struct FetchState;
struct StoreState;
}  // namespace internal

struct OperationOptions {
  std::uint64_t user_data = 0;
  std::chrono::nanoseconds deadline{
      0};  // from submission; 0: none. What is not there by then counts as missed
};

// How one block of an operation ended.
struct BlockResult {
  PlaceId found_at = 0;           // where match() found it
  bool usable = false;            // part of the usable prefix
  Code reason = Code::cancelled;  // why not, where !usable
};

// Brings matched blocks into HBM, or into the slots of a registered pool.
class FetchOp {
 public:
  FetchOp() = default;
  FetchOp(FetchOp&&) noexcept;
  FetchOp& operator=(FetchOp&&) noexcept;
  ~FetchOp();

  // True when all copies are enqueued and their points recorded, or the operation has failed or was
  // cancelled. The bytes of a layer have landed when its point has passed: see gate().
  bool done() const noexcept;
  std::uint64_t user_data() const noexcept;

  // REQUIRES for all below: done().
  std::uint32_t blocks_usable()
      const noexcept;  // longest prefix that is there; less than matched on partial failure
  std::span<const BlockResult> results() const noexcept;
  // The slots of the usable prefix (own arena). Once. With an empty prefix: an empty lease, ready
  // for reserve().
  ReadLease take_lease();
  // `stream` waits for the bytes of `layer` of all usable blocks; the host does not.
  // Returns: success; retry_later; io_error.
  Result<void> gate(std::uint32_t layer, StreamId stream);
  StreamPoint layer_point(std::uint32_t layer) const noexcept;

  // A wish: the operation still ends once, with whatever prefix was there.
  void cancel() noexcept;

 private:
  friend class internal::Core;
  std::shared_ptr<internal::Core> core_;
  internal::FetchState* state_ = nullptr;
};

// Copies blocks out of a registered pool into the cache.
class StoreOp {
 public:
  StoreOp() = default;
  StoreOp(StoreOp&&) noexcept;
  StoreOp& operator=(StoreOp&&) noexcept;
  ~StoreOp();

  // True when every block is stored or refused; the pool's slots may be written again.
  bool done() const noexcept;
  std::uint64_t user_data() const noexcept;
  // REQUIRES for all below: done().
  std::uint32_t blocks_stored() const noexcept;  // new or already there: a prefix of what was given
  Result<void> status() const noexcept;          // why not all: no_space, io_error

 private:
  friend class internal::Core;
  std::shared_ptr<internal::Core> core_;
  internal::StoreState* state_ = nullptr;
};

}  // namespace terrace
