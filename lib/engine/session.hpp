// The reference engine on the cache: a model, a cache for its KV, and generate(), which joins them.
//
// Uses the cache through its public headers only, as any engine would. Greedy: the same prompt gets
// the same tokens whatever the cache holds. Called by terrace-serve and tests.
// Thread rule: generate() one at a time (the caller sees to it); everything else from any thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/forward.hpp"
#include "engine/model.hpp"
#include "engine/paged_sequence.hpp"
#include "engine/tokenizer/tokenizer.hpp"
#include "terrace/cache.hpp"

namespace terrace::engine {

struct SessionOptions {
  std::string model;  // as load_model() takes it: builtin:tiny, builtin:small or a directory
  LoadOptions load;
  std::uint32_t block_tokens = 16;
  Options cache;  // sizes, switches and hooks; its device, where set, copies between host memories
  // Computed and committed together; an abort keeps whole chunks.
  std::uint32_t prefill_chunk_tokens = 512;
  // Then what is missing is computed.
  std::chrono::nanoseconds fetch_deadline = std::chrono::seconds{10};
  std::chrono::nanoseconds reserve_deadline = std::chrono::seconds{10};  // for spills to free HBM
};

// Why a request got no answer: invalid_argument (its prompt), no_space (HBM), or what the cache
// said.
class GenerateError : public std::runtime_error {
 public:
  GenerateError(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

struct GenerateRequest {
  std::span<const TokenId> prompt;  // not empty
  std::uint32_t max_tokens = 16;
  std::optional<std::string_view> tenant_salt;
  // Told of each token as it is chosen; false ends the answer there. May be empty.
  std::function<bool(TokenId)> on_token;
};

enum class FinishReason : std::uint8_t { stop, length };

struct Generation {
  std::vector<TokenId> tokens;  // an end token, where one was chosen, is the last of them
  FinishReason finish = FinishReason::length;
  std::uint32_t prompt_tokens = 0;
  std::array<std::uint32_t, kPlaceCount>
      cached_tokens{};  // of the prompt, by the place they were found in
  std::chrono::nanoseconds time_to_first_token{0};  // from the call
};

class Session {
 public:
  // Loads the model, opens the cache and binds the model's identity to it.
  // Throws LoadError: the model, or the cache, cannot be used; the text says why and what to do.
  static std::unique_ptr<Session> open(SessionOptions options);
  ~Session();

  // Throws GenerateError, as check() and: no_space, closed, io_error.
  Generation generate(const GenerateRequest& request);
  // Throws GenerateError (invalid_argument) where no answer to `prompt` is possible.
  void check(std::span<const TokenId> prompt) const;

  const LoadedModel& model() const noexcept { return model_; }
  const Tokenizer& tokenizer() const noexcept { return tokenizer_; }
  const Cache& cache() const noexcept { return cache_; }
  // Longest prompt and answer together: the model's context, or what HBM holds where that is less.
  std::uint32_t context_tokens() const noexcept { return context_tokens_; }
  // Blocking: as Cache::close().
  Result<void> close() { return cache_.close(); }

 private:
  class FetchGate;

  Session(SessionOptions options, LoadedModel model, Tokenizer tokenizer, Cache cache, Model bound,
          StreamId stream);
  FetchOp fetch_prefix(const GenerateRequest& request);
  TokenId prefill(PagedSequence& sequence, std::span<const TokenId> prompt, std::uint32_t start,
                  FetchOp& fetch);
  void decode(PagedSequence& sequence, const GenerateRequest& request, TokenId next,
              Generation& result);
  void make_room(PagedSequence& sequence, std::uint32_t tokens);
  void publish(PagedSequence& sequence, std::span<const TokenId> computed);
  bool ends_answer(TokenId token) const noexcept;

  const SessionOptions options_;
  const LoadedModel model_;
  const Tokenizer tokenizer_;
  Forward forward_;
  Cache cache_;
  Model bound_;
  StreamId stream_;  // what the forward pass runs on, as the cache sees it
  std::uint32_t context_tokens_ = 0;
};

}  // namespace terrace::engine
