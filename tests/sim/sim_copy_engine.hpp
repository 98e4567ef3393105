// The host copy engine, which already chooses among the orders that CUDA allows, with what else a
// device does: a full queue, no progress for a while, no memory at open, and the end of the device.
// It keeps books of what was taken from it and not given back.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <set>

#include "sim/world.hpp"
#include "terrace/io.hpp"

namespace terrace::sim {

class SimCopyEngine final : public CopyEngine {
 public:
  SimCopyEngine(World& world, std::uint64_t seed)
      : world_(world), inner_(make_host_copy_engine(seed)) {}

  std::string_view name() const noexcept override { return "simulated"; }
  Result<std::byte*> allocate(std::size_t bytes) override;
  void deallocate(std::byte* base) noexcept override;
  Result<void> pin(std::byte* base, std::size_t bytes) override;
  void unpin(std::byte* base) noexcept override { held_.erase(base); }
  Result<StreamId> create_stream() override;
  void destroy_stream(StreamId stream) noexcept override;
  Result<void> copy(StreamId stream, std::span<const Copy> copies) override;
  Result<StreamPoint> record(StreamId stream) override;
  Result<void> wait(StreamId stream, StreamPoint point) override;
  PointState query(StreamPoint point) noexcept override;
  PointState synchronize(StreamPoint point) noexcept override;
  // Time passes here, once a round of the pump, and that is always something.
  bool progress(std::size_t budget_bytes) override;

  bool has_failed() const { return failed_ || world_.crashed(); }
  // Streams, allocations and pinned memory that somebody still has.
  std::size_t held() const { return held_.size() + streams_.size(); }

 private:
  World& world_;
  std::unique_ptr<CopyEngine> inner_;
  std::set<const std::byte*> held_;
  std::set<StreamId> streams_;
  bool failed_ = false;
};

}  // namespace terrace::sim
