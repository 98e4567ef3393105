// A request of an engine that uses the cache's own arena: match, fetch, read the prefix layer by
// layer behind its gates, compute and commit the rest, keep the lease for a while, read everything
// once more, and give it back while that is still going on.
// Thread rule: one thread.
#pragma once

#include <optional>

#include "sim/task.hpp"

namespace terrace::sim {

class ArenaRequest final : public Task {
 public:
  ArenaRequest(Life& life, const Chain& chain, std::uint32_t prompt_tokens);

  void step() override;
  void watch() override;

 private:
  enum class State : std::uint8_t {
    matched,
    fetching,
    reading,    // attention over the lease is being enqueued
    verifying,  // until it has run
    reserving,
    computing,
    holding,
    leaving,  // the lease is given back; attention still reads its slots
  };

  void fetch();
  void await_fetch();
  void read(bool gated);
  void enqueue_reads();
  void verify();
  void reserve();
  void compute();
  void commit(StreamPoint after);
  void hold();
  void release();

  State state_ = State::matched;
  FetchWatch watch_;
  Match match_;
  StreamId stream_;
  FetchOp op_;
  ReadLease lease_;
  std::optional<WriteLease> fresh_;
  StreamWork computation_;
  std::optional<Readback> readback_;
  bool is_gated_ = false;
  bool is_last_read_ = false;
  bool is_prefill_over_ = false;
};

}  // namespace terrace::sim
