// POST /v1/completions: from the body of a request to the body of its answer.
//
// Waits its turn, lets the session generate, tells text, usage and timings. Knows no sockets.
// Called by the server's handlers.
// Thread rule: answer() from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session.hpp"
#include "serve/api.hpp"
#include "serve/request_metrics.hpp"
#include "serve/turnstile.hpp"

namespace terrace::serve {

class CompletionService {
 public:
  // All outlive this. `model_name` is what requests call the model.
  CompletionService(engine::Session& session, Turnstile& turnstile, RequestMetrics& metrics,
                    std::string model_name);

  // Throws ApiError.
  nlohmann::ordered_json answer(std::string_view body);

 private:
  using Clock = std::chrono::steady_clock;
  struct Answer;

  std::vector<TokenId> tokens_of(const CompletionRequest& request) const;
  Answer generate(const CompletionRequest& request, std::span<const TokenId> prompt,
                  Clock::time_point arrival);
  nlohmann::ordered_json to_json(const CompletionRequest& request, const Answer& answer);

  engine::Session& session_;
  Turnstile& turnstile_;
  RequestMetrics& metrics_;
  const std::string model_name_;
  const std::string id_prefix_;  // tells the answers of one server's life from those of the next
  std::atomic<std::uint64_t> answers_{0};
};

}  // namespace terrace::serve
