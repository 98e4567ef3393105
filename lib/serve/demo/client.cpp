#include "serve/demo/client.hpp"

#include <httplib.h>

#include <sstream>
#include <thread>

namespace terrace::demo {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kAnswerTimeout = 15min;  // a cold prompt of a large model on a small machine

httplib::Client connect(std::uint16_t port) {
  httplib::Client http("127.0.0.1", port);
  http.set_read_timeout(kAnswerTimeout);
  return http;
}

std::string body_of(const httplib::Result& result, const std::string& what) {
  if (!result) throw ClientError(what + ": no answer (" + httplib::to_string(result.error()) + ")");
  if (result->status == 200) return result->body;
  throw ClientError(what + ": " + std::to_string(result->status) + " " + result->body);
}

}  // namespace

Json Client::get(const std::string& path) {
  return Json::parse(body_of(connect(port_).Get(path.c_str()), "GET " + path));
}

Json Client::post(const std::string& path, const Json& body) {
  const auto result = connect(port_).Post(path.c_str(), body.dump(), "application/json");
  return Json::parse(body_of(result, "POST " + path));
}

Completion Client::complete(const Json& prompt, std::uint32_t max_tokens, const std::string& salt) {
  Json body = {{"prompt", prompt}, {"max_tokens", max_tokens}, {"return_token_ids", true}};
  if (!salt.empty()) body["cache_salt"] = salt;
  const Json answer = post("/v1/completions", body);
  const Json& choice = answer.at("choices").at(0);
  const Json& terrace = answer.at("terrace");
  const Json& by_tier = terrace.at("cached_tokens_by_tier");
  Completion completion;
  completion.token_ids = choice.at("token_ids").get<std::vector<std::uint32_t>>();
  completion.text = choice.at("text").get<std::string>();
  completion.prompt_tokens = answer.at("usage").at("prompt_tokens").get<std::uint32_t>();
  completion.hbm_tokens = by_tier.at("hbm").get<std::uint32_t>();
  completion.dram_tokens = by_tier.at("dram").get<std::uint32_t>();
  completion.nvme_tokens = by_tier.at("nvme").get<std::uint32_t>();
  completion.ttft_ms = terrace.at("ttft_ms").get<double>();
  return completion;
}

std::uint64_t Client::drop(const std::vector<std::string>& tiers) {
  return post("/admin/cache/drop", {{"tiers", tiers}}).at("dropped_copies").get<std::uint64_t>();
}

std::string Client::model_name() {
  return get("/v1/models").at("data").at(0).at("id").get<std::string>();
}

std::uint32_t Client::context_tokens() {
  return get("/v1/models").at("data").at(0).at("max_model_len").get<std::uint32_t>();
}

double Client::metric(const std::string& series) {
  std::istringstream text(body_of(connect(port_).Get("/metrics"), "GET /metrics"));
  for (std::string line; std::getline(text, line);) {
    if (line.rfind(series + " ", 0) == 0) return std::stod(line.substr(series.size() + 1));
  }
  throw ClientError("/metrics has no " + series);
}

void Client::wait_written(std::chrono::milliseconds timeout) {
  const auto give_up_at = std::chrono::steady_clock::now() + timeout;
  while (metric("terrace_cache_spill_backlog_blocks") > 0) {
    if (std::chrono::steady_clock::now() > give_up_at)
      throw ClientError("the cache was not written in time");
    std::this_thread::sleep_for(20ms);
  }
}

}  // namespace terrace::demo
