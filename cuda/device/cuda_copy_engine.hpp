// Streams, events and copies of one CUDA device. Has been compiled (nvcc 13.0), not run: no machine
// of ours had a GPU when it was written. The contract suite (tests/io/copy_engine_contract.hpp) is
// what a first run must pass.
//
// A ticket is a place in a stream's ring of events: recorded in order, found passed in order, and
// used again only when passed. Thus a point is a value, and waiting for an old one needs no event.
//
// Must never call CUDA in a host function, nor hold a lock across a call that may synchronise. Made
// by make_cuda_copy_engine().
// Thread rule: any thread.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "terrace/cuda.hpp"

namespace terrace::internal {

class CudaCopyEngine final : public CopyEngine {
 public:
  static constexpr std::uint64_t events_max = 1024;  // points pending on a stream

  explicit CudaCopyEngine(int device) : device_(device) {}
  ~CudaCopyEngine() override;

  std::string_view name() const noexcept override { return "cuda"; }
  Result<std::byte*> allocate(std::size_t bytes) override;
  void deallocate(std::byte* base) noexcept override;
  Result<void> pin(std::byte* base, std::size_t bytes) override;
  void unpin(std::byte* base) noexcept override;
  Result<StreamId> create_stream() override;
  void destroy_stream(StreamId stream) noexcept override;
  // CUDA reports no full queue; the call may wait for room in the driver's. After an error some
  // copies may have run.
  Result<void> copy(StreamId stream, std::span<const Copy> copies) override;
  Result<StreamPoint> record(StreamId stream) override;
  Result<void> wait(StreamId stream, StreamPoint point) override;
  PointState query(StreamPoint point) noexcept override;
  PointState synchronize(StreamPoint point) noexcept override;
  bool progress(std::size_t) override { return false; }

  // `owned`: destroy_stream() also destroys the handle.
  Result<StreamId> add_stream(cudaStream_t handle, bool owned);

 private:
  struct Stream;
  using StreamPtr = std::shared_ptr<Stream>;

  StreamPtr find(StreamId id) const;
  PointState state_without_stream(StreamPoint point) const;

  const int device_;
  mutable std::mutex mutex_;  // guards the tables; each stream has its own for its events
  std::unordered_map<StreamId, StreamPtr> streams_;
  StreamId next_id_ = 1;  // ids are never used twice: an old point stays passed
  std::unordered_map<std::byte*, std::size_t> pinned_;
};

}  // namespace terrace::internal
