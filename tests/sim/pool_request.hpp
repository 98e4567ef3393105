// A request of an engine with a paged KV pool of its own: match, fetch into its slots, read them
// behind the gates, compute the rest in further slots, and store that into the cache.
// Thread rule: one thread.
#pragma once

#include <optional>

#include "sim/task.hpp"

namespace terrace::sim {

class PoolRequest final : public Task {
 public:
  // REQUIRES: the life has a pool, and keeps it as long as this lives.
  PoolRequest(Life& life, const Chain& chain, std::uint32_t prompt_tokens);

  void step() override;
  void watch() override;

 private:
  enum class State : std::uint8_t {
    matched,
    fetching,
    reading,
    verifying,
    computing,
    submitting,
    storing,
  };

  void fetch();
  void await_fetch();
  void read();
  void enqueue_reads();
  void verify();
  void begin_computation();
  void compute();
  void submit();
  void await_store();
  void give_back();

  State state_ = State::matched;
  FetchWatch watch_;
  Match match_;
  FetchOp op_;
  std::uint32_t usable_ = 0;
  std::vector<std::uint32_t> slots_;
  std::optional<Readback> readback_;
  StreamWork computation_;
  StoreOp store_;
  std::uint32_t first_stored_ = 0;
  std::uint32_t room_ = 0;  // in DRAM, when it was stored
  std::uint64_t user_data_ = 0;
};

}  // namespace terrace::sim
