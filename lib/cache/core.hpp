// What stands behind Cache, Model and every lease: one lock, the block store, the mover, and the
// pump.
//
// The lock guards states and is held for bookkeeping only: no byte is copied, hashed or written
// under it. The pump is whoever polls, one thread at a time.
// Thread rule: every public function from any thread, never with the lock held.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "io/held_clock.hpp"
#include "io/owner_process.hpp"
#include "io/waker.hpp"
#include "memory/spare_vectors.hpp"
#include "move/mover.hpp"
#include "terrace/cache.hpp"

namespace terrace::internal {

// What only tests replace; what users may is in Options.
struct CoreSeams {
  std::function<std::unique_ptr<SlotIndex>(const std::string& path)> slot_index;
  std::uint64_t incarnation = 0;  // 0: a random one
};

class Core : public std::enable_shared_from_this<Core> {
 public:
  static Result<std::shared_ptr<Core>> open(Options options, Layout layout,
                                            const CoreSeams& seams = {});
  static Cache handle(std::shared_ptr<Core> core);
  ~Core();

  // ---- Model.
  Result<Match> match(const ChainPoint& root, std::span<const TokenId> prompt);
  Result<void> fetch(Match& match, FetchOp& op, const OperationOptions& options);
  Result<void> fetch_to_pool(Match& match, PoolId pool, std::span<const std::uint32_t> slots,
                             StreamPoint after, FetchOp& op, const OperationOptions& options);
  Result<WriteLease> reserve(std::uint32_t blocks);
  Result<CommitResult> commit(WriteLease& lease, std::span<const TokenId> tokens, StreamPoint after,
                              ReadLease& prefix);
  Result<void> store(PoolId pool, std::span<const std::uint32_t> slots,
                     std::span<const TokenId> tokens, StreamPoint after, Prefix& prefix,
                     StoreOp& op, const OperationOptions& options);

  // ---- Handles.
  void release(Match& match) noexcept;
  void release(ReadLease& lease, StreamPoint after) noexcept;
  void release(WriteLease& lease, StreamPoint after) noexcept;
  void release(FetchOp& op) noexcept;
  void release(StoreOp& op) noexcept;
  ReadLease take_lease(FetchOp& op);
  void cancel(FetchOp& op) noexcept;
  StreamPoint layer_point(const FetchState& state, std::uint32_t layer) const noexcept {
    return mover_->layer_point(state, layer);
  }

  // ---- Cache.
  Result<PoolId> register_pool(PoolDescription description);
  void unregister_pool(PoolId pool);
  bool poll(std::chrono::nanoseconds timeout);
  Result<void> flush(std::chrono::nanoseconds timeout);
  Result<std::uint64_t> drop(std::span<const PlaceId> places, std::chrono::nanoseconds timeout);
  Result<void> close();
  Stats stats();
  std::size_t read_events(std::uint64_t from, std::span<Event> out);
  std::byte* data(Slot slot);
  const Tiers& tiers() const noexcept { return *tiers_; }
  CopyEngine& device() noexcept { return *options_.device; }

 private:
  explicit Core(Options options) : options_(std::move(options)), time_(*options_.clock) {}

  // The lock, and one time for all that happens under it. Who only looks needs no time.
  class Locked {
   public:
    explicit Locked(Core& core) : guard_(core.lock_) { core.time_.look(); }

   private:
    std::lock_guard<std::mutex> guard_;
  };

  // What handles, and calls, list things in.
  struct Spares {
    SpareVectors<std::uint32_t> blocks;
    SpareVectors<PlaceId> places;
    SpareVectors<MatchRun> runs;
    SpareVectors<Slot> slots;
    SpareVectors<BlockKey> keys;
    SpareVectors<ChainPoint> chains;
    SpareVectors<Movement> movements;
  };

  // open.cpp
  Result<void> open_tiers(Layout layout, const CoreSeams& seams);
  void prefault_hbm();
  Result<void> open_dram();
  Result<void> open_nvme(const CoreSeams& seams);
  Result<void> recover_nvme();
  void log(LogLevel level, const char* text) const;

  // core.cpp
  std::uint64_t block_tokens() const noexcept { return tiers_->layout.block_tokens; }
  void walk(Match& match, std::span<const TokenId> tokens);
  void give_back_lists(Match& match) noexcept;
  Result<void> start_fetch(Match& match, FetchOp& op, const OperationOptions& options,
                           const PoolId* pool, std::span<const std::uint32_t> slots);
  void publish(BlockId id, std::uint32_t slot, Batch& batch);
  std::optional<Movement> land_in_dram(const RecordMeta& meta, BlockId parent);

  // pump.cpp
  bool forked() const noexcept { return !owner_.is_this(); }
  void wake() noexcept;
  void drive();
  template <class IsDone>
  bool poll_until(std::chrono::nanoseconds timeout, const IsDone& is_done);
  NvmeTier::Facts describe_nvme() const;

  const OwnerProcess owner_{};
  Options options_;
  std::unique_ptr<Tiers> tiers_;
  std::mutex lock_;
  HeldClock time_;  // guarded by lock_
  std::mutex pump_;
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<Mover> mover_;
  Spares spares_;
  Waker waker_;
  NvmeTier::Facts nvme_;  // as it was at close()
  bool drained_ = false;  // guarded by pump_: nothing to poll for any more
  std::atomic<bool> closed_{false};
  std::atomic<bool> stop_driver_{false};
  std::thread driver_;
};

}  // namespace terrace::internal
