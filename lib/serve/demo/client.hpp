// What a client says to terrace-serve, and what it reads of the answers.
//
// Called by the demo and the process tests.
// Thread rule: one thread at a time for each client.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace::demo {

// The server did not answer, or with an error.
class ClientError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Completion {
  std::vector<std::uint32_t> token_ids;
  std::string text;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t hbm_tokens = 0;  // of the prompt, found in HBM; dram and nvme likewise
  std::uint32_t dram_tokens = 0;
  std::uint32_t nvme_tokens = 0;
  double ttft_ms = 0;

  std::uint32_t cached_tokens() const noexcept { return hbm_tokens + dram_tokens + nvme_tokens; }
};

class Client {
 public:
  explicit Client(std::uint16_t port) : port_(port) {}

  // All throw ClientError.
  // `prompt` is text or an array of token ids; an empty salt is none.
  Completion complete(const nlohmann::json& prompt, std::uint32_t max_tokens,
                      const std::string& salt = {});
  // Empties tiers ("hbm", "dram", "nvme"). Returns: how many copies went.
  std::uint64_t drop(const std::vector<std::string>& tiers);
  std::string model_name();
  std::uint32_t context_tokens();
  // The value of a series of /metrics, spelled as there:
  // terrace_cache_hit_tokens_total{place="hbm"}.
  double metric(const std::string& series);
  // Blocking: until everything is written to the lowest tier. Throws also where that takes longer
  // than `timeout`.
  void wait_written(std::chrono::milliseconds timeout);

 private:
  nlohmann::json get(const std::string& path);
  nlohmann::json post(const std::string& path, const nlohmann::json& body);

  std::uint16_t port_;
};

}  // namespace terrace::demo
