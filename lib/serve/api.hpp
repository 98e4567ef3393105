// The HTTP API as values: what a completion request may say, and how an error is told. OpenAI's
// shapes.
//
// Pure: knows JSON, no sockets and no engine. Called by the server's handlers.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "terrace/events.hpp"

namespace terrace::serve {

// An answer that is not 200. Thrown by handlers, turned into {"error": {...}} in one place.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}
  int status() const noexcept { return status_; }
  const std::string& param() const noexcept { return param_; }
  nlohmann::ordered_json to_json() const;

 private:
  int status_;
  std::string param_;
  std::string code_;
};

struct CompletionRequest {
  std::optional<std::string> model;                              // absent: the one that is served
  std::variant<std::string, std::vector<std::uint32_t>> prompt;  // text or token ids; not empty
  std::uint32_t max_tokens = 16;
  std::vector<std::string> stop;
  bool return_token_ids = false;
  std::optional<std::string> cache_salt;  // requests share KV only within one salt
};

// Throws ApiError 400: not JSON, not an object, nested too deep.
nlohmann::json parse_body(std::string_view body);
// Throws ApiError 400 that names the field, what is wrong with it and what to do.
CompletionRequest parse_completion_request(std::string_view body);
// {"tiers": ["hbm", "dram"]}. Throws ApiError 400.
std::vector<PlaceId> parse_drop_request(std::string_view body);

}  // namespace terrace::serve
