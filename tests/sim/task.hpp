// Something that an engine does with the cache, over many rounds: a state machine that the scenario
// pushes on from time to time, so that any number of them are interleaved in any way.
//
// fetch_watch.cpp holds what is true of every match and every fetch, whoever asks.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/life.hpp"

namespace terrace::sim {

class Task {
 public:
  Task(Life& life, const Chain& chain, std::uint32_t prompt_tokens)
      : life_(life), chain_(chain), prompt_tokens_(prompt_tokens) {}
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  // One try to get on.
  virtual void step() = 0;
  // Called after every poll.
  virtual void watch() = 0;
  bool over() const { return over_; }

 protected:
  std::span<const TokenId> prompt() const { return std::span(chain_.tokens).first(prompt_tokens_); }
  std::uint32_t whole_blocks() const { return prompt_tokens_ / life_.universe().block_tokens(); }
  std::span<const TokenId> tokens_of(std::uint32_t first_block, std::uint32_t count) const {
    const std::size_t block_tokens = life_.universe().block_tokens();
    return prompt().subspan(first_block * block_tokens, count * block_tokens);
  }
  bool lucky(std::uint32_t one_in) { return life_.world().luck().one_in(one_in); }
  void check(bool holds, const char* what) { life_.world().check(holds, what); }
  void end() { over_ = true; }

  Life& life_;
  const Chain& chain_;
  const std::uint32_t prompt_tokens_;

 private:
  bool over_ = false;
};

// A fetch from its match to its end, and what must hold of it.
class FetchWatch {
 public:
  FetchWatch(Life& life, const Chain& chain, std::uint32_t prompt_tokens)
      : life_(life), chain_(chain), prompt_tokens_(prompt_tokens) {}

  // Returns: the longest usable prefix, as the cache sees it, and as it must be.
  Match match(std::span<const TokenId> prompt);
  // Options of the next fetch: perhaps with a deadline.
  OperationOptions options();
  // REQUIRES: match() was the last call, and the fetch was started with options().
  void started(bool into_arena);
  void cancelled() { is_cancelled_ = true; }
  // After each poll: it ends soon after its deadline or its cancellation, if not before.
  void look(const FetchOp& op);
  // REQUIRES: op.done().
  void ended(const FetchOp& op);

  std::uint32_t matched() const { return static_cast<std::uint32_t>(found_at_.size()); }

 private:
  void check_place(BlockNumber block, PlaceId place, Availability availability);
  void check_runs(const Match& match);
  void note(std::string text) const;
  bool explains(Code reason, std::size_t first_missing) const;

  Life& life_;
  const Chain& chain_;
  const std::uint32_t prompt_tokens_;
  std::vector<PlaceId> found_at_;
  std::vector<std::uint32_t> failures_;  // of each block, at the match
  std::uint64_t user_data_ = 0;
  Clock::Time deadline_{0};  // 0: none
  std::uint32_t room_ = 0;   // in the arena, when it started
  std::uint32_t needed_ = 0;
  bool into_arena_ = false;
  bool meets_failed_copy_ = false;  // of a block that it asks for, held by somebody else
  bool is_cancelled_ = false;
  std::uint32_t overdue_polls_ = 0;
  Clock::Time started_{0};
};

}  // namespace terrace::sim
