// What the server counts about requests: outcomes, tokens, latencies. In base units, as Prometheus
// wants them.
//
// Called by the server's handlers.
// Thread rule: every method from any thread.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "terrace/events.hpp"

namespace terrace::serve {

// One answered request, as it is counted.
struct AnsweredRequest {
  std::string finish_reason;  // "stop" or "length"
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::array<std::uint32_t, kPlaceCount> cached_tokens{};
  std::chrono::duration<double> time_to_first_token{0};  // from arrival, waiting included
  std::chrono::duration<double> end_to_end{0};
};

class RequestMetrics {
 public:
  RequestMetrics();

  void answered(const AnsweredRequest& request);
  void refused(int http_status);  // an error answer of POST /v1/completions
  // All families, in the order they were made.
  std::vector<prometheus::MetricFamily> collect() const { return registry_.Collect(); }

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Counter& prompt_tokens_;
  prometheus::Counter& generated_tokens_;
  std::array<prometheus::Counter*, kPlaceCount> cached_tokens_{};
  prometheus::Histogram& time_to_first_token_;
  prometheus::Histogram& time_per_output_token_;
  prometheus::Histogram& end_to_end_;
  prometheus::Histogram& request_prompt_tokens_;
};

}  // namespace terrace::serve
