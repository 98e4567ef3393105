// Memory as the device, memcpy as the copy: the CopyEngine of machines without a GPU, and of tests.
//
// A stream is a bounded queue of operations. Nothing runs where it is enqueued; progress() and
// synchronize() run what is ready, one stream's operations strictly in order, different streams' in
// an order that the seed chooses. Thus a missing wait shows here as it would on a GPU.
//
// Must never hold its lock while bytes are copied, and never allocates after a stream has been
// created. Made by make_host_copy_engine().
// Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "io/fast_copy.hpp"
#include "io/host_memory.hpp"
#include "terrace/io.hpp"

namespace terrace::internal {

class HostCopyEngine final : public CopyEngine {
 public:
  static constexpr std::size_t queue_ops_max =
      65536;  // a stream; 2 MiB of address space, touched as used

  explicit HostCopyEngine(std::uint64_t seed);
  ~HostCopyEngine() override;  // drops work that has not run

  std::string_view name() const noexcept override { return "host"; }
  Result<std::byte*> allocate(std::size_t bytes) override;
  void deallocate(std::byte* base) noexcept override;
  Result<void> pin(std::byte* base, std::size_t bytes) override;
  void unpin(std::byte* base) noexcept override;
  Result<StreamId> create_stream() override;
  // Work left on the stream still runs; its points pass as it does.
  void destroy_stream(StreamId stream) noexcept override;
  Result<void> copy(StreamId stream, std::span<const Copy> copies) override;
  Result<StreamPoint> record(StreamId stream) override;
  Result<void> wait(StreamId stream, StreamPoint point) override;
  PointState query(StreamPoint point) noexcept override;
  PointState synchronize(StreamPoint point) noexcept override;
  bool progress(std::size_t budget_bytes) override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Without initialisers: a queue's memory is touched only where it is used.
  struct Op {
    enum class Kind : std::uint8_t { copy, record, wait };
    Kind kind;
    StreamId stream;        // wait
    std::uint64_t count;    // copy: bytes; record and wait: ticket
    std::byte* to;          // copy
    const std::byte* from;  // copy
  };

  struct Stream {
    StreamId id = 0;
    std::unique_ptr<Op[]> ring;
    std::uint64_t head = 0;        // operations run, since the stream was last idle
    std::uint64_t tail = 0;        // operations enqueued, likewise
    std::size_t copied_bytes = 0;  // of the copy at the head
    std::uint64_t recorded = 0;    // last ticket given out
    std::uint64_t passed = 0;      // last ticket passed
    bool busy = false;             // a thread copies for the head
    bool destroyed = false;        // goes when it has run dry
  };

  struct Region {
    std::byte* base;
    std::size_t bytes;
  };

  Stream* find(StreamId id) noexcept;
  Result<Stream*> find_for_enqueue(StreamId id, std::size_t ops);
  static void push(Stream& stream, const Op& op) noexcept;
  PointState state(StreamPoint point) noexcept;
  bool runnable(const Stream& stream) noexcept;
  Stream* choose_runnable() noexcept;
  Stream* first_needed(StreamPoint point) noexcept;
  std::size_t run_head(Stream& stream, std::size_t budget_bytes, Lock& lock) noexcept;
  bool copy_slice(Stream& stream, const Op& op, std::size_t bytes, Lock& lock) noexcept;
  std::size_t slice_bytes(std::size_t budget_bytes) noexcept;
  std::uint64_t random() noexcept;

  const bool seeded_;
  const CopyKernel kernel_ = best_copy_kernel();
  std::mutex mutex_;  // guards everything below but the two lists of regions
  std::condition_variable advanced_;
  std::size_t synchronizing_ = 0;  // threads that wait for advanced_
  std::uint64_t random_state_;
  std::vector<std::unique_ptr<Stream>> streams_;  // by ascending id
  StreamId next_id_ = 1;  // ids are never used twice: an old point stays passed
  std::size_t turn_ = 0;  // of the round robin

  std::mutex regions_mutex_;
  std::vector<HostMemory> allocated_;
  std::vector<Region> pinned_;
};

}  // namespace terrace::internal
