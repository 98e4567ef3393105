// One life of a cache, from open() to close() or to a crash: the cache, the simulated device, the
// engine's stream, and the oracles that look at all of it after every step.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/coverage.hpp"
#include "sim/engine_pool.hpp"
#include "sim/hardware.hpp"
#include "sim/mirror.hpp"
#include "sim/sim_copy_engine.hpp"
#include "sim/stream_work.hpp"
#include "sim/universe.hpp"
#include "sim/world.hpp"

namespace terrace::sim {

struct Sizes {
  std::uint32_t hbm_blocks = 0;
  std::uint32_t dram_blocks = 0;
  std::uint32_t nvme_blocks = 0;  // of each disk
  std::uint32_t disks = 1;
  std::uint32_t pool_slots = 0;
  std::uint32_t queue_depth = 1;
  std::uint32_t fetches_max = 1;
  std::uint32_t layer_copy_bytes = 1;
  std::uint64_t write_bytes_per_day = 0;
  std::uint64_t scrub_bytes_per_second = 0;
  bool with_index = false;
  // Everything that there is fits everywhere: then nothing may ever be lost.
  bool roomy = false;
};

class Life {
 public:
  struct Surroundings {
    World& world;
    Universe& universe;
    Hardware& hardware;
    Coverage& coverage;
    std::string folder;
  };

  // Returns: null where the cache does not open, which a fault must explain, and which leaves nothing
  // behind.
  static std::unique_ptr<Life> open(const Surroundings& around, const Sizes& sizes,
                                    std::uint64_t incarnation);

  ~Life();

  World& world() { return around_.world; }
  Universe& universe() { return around_.universe; }
  Coverage& coverage() { return around_.coverage; }
  const Sizes& sizes() const { return sizes_; }
  Cache& cache() { return *cache_; }
  const Model& model(const Chain& chain) const { return models_[chain.model]; }
  SimCopyEngine& device() { return *device_; }
  // The engine's streams; work on one is ordered, and between two only where one waits.
  StreamId stream(std::uint32_t number) const { return streams_[number % streams_.size()]; }
  Buffers& buffers() { return buffers_; }
  Mirror& mirror() { return *mirror_; }
  EnginePool* pool() { return pool_.get(); }
  // The one stream that uses the pool.
  StreamId pool_stream() const { return streams_.front(); }
  PoolId pool_id() const { return pool_id_; }

  void poll();
  // Events, and every number that must add up.
  void observe();
  // REQUIRES: no operation, lease or match.
  void check_at_rest();
  // No work, no lease: from then on requests only come to their ends.
  void settle() { settling_ = true; }
  bool settling() const { return settling_; }
  void close();
  bool closed() const { return closed_; }
  // The pool is the engine's alone, until it is lent again, as another one.
  void take_pool_back();
  void lend_pool();

  // Slots of `place` that an allocation can have: free, or held by nobody.
  std::uint32_t room(PlaceId place);
  // The block is in the cache's hands.
  void commit(BlockNumber block);
  void given(BlockNumber block) { given_[block] = true; }
  void committed(const CommitResult& result);
  void started_fetch(std::uint64_t prompt_tokens);
  void ended_fetch(const FetchOp& op);
  // Something has happened by which an operation may fail.
  bool may_fail() const;
  // Blocks that came back though nobody had seen them arrive: their records may be torn.
  void set_suspect(const BlockSet& suspect);

 private:
  Life(const Surroundings& around, const Sizes& sizes, std::uint64_t incarnation);
  Options options();
  bool open_cache();
  void check_slots(const Stats& stats);
  void check_counters(const Stats& stats);
  void check_drives(const Stats& stats);
  void check_traffic(PlaceId place, const PlaceStats& at);

  const Surroundings around_;
  const Sizes sizes_;
  const std::uint64_t incarnation_;
  const std::uint64_t failures_before_;
  // Destroyed from the last to the first: the cache before the device, the device before what it
  // writes to.
  Buffers buffers_;
  std::unique_ptr<EnginePool> pool_;
  std::shared_ptr<SimCopyEngine> device_;
  std::unique_ptr<Mirror> mirror_;
  std::unique_ptr<Cache> cache_;
  std::vector<Model> models_;
  std::vector<StreamId> streams_;
  PoolId pool_id_;
  Stats last_;
  const Clock::Time born_;
  const std::uint64_t written_before_;  // to the drives
  BlockSet given_;
  std::uint64_t fetches_ = 0;
  std::uint64_t fetch_tokens_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t duplicates_ = 0;
  std::array<std::uint64_t, kPlaceCount> hits_{};
  std::uint64_t suspects_ = 0;
  bool settling_ = false;
  bool closed_ = false;
};

}  // namespace terrace::sim
