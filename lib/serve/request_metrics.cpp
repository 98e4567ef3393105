#include "serve/request_metrics.hpp"

namespace terrace::serve {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::Registry;

Family<Counter>& counter_family(Registry& registry, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry);
}

Histogram& histogram(Registry& registry, const char* name, const char* help,
                     const Histogram::BucketBoundaries& bounds) {
  return BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

// 1 ms (a tiny model from HBM) to 5 minutes (a long cold prompt on a CPU).
const Histogram::BucketBoundaries kLatencySeconds = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
const Histogram::BucketBoundaries kTokenSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                   0.05,   0.1,   0.25,   0.5,   1,    2.5};
const Histogram::BucketBoundaries kPromptTokens = {16,   64,   256,   512,   1024,  2048,
                                                   4096, 8192, 16384, 32768, 65536, 131072};

}  // namespace

RequestMetrics::RequestMetrics()
    : requests_(counter_family(
          registry_, "terrace_requests_total",
          "Completion requests by outcome: a finish reason, or the status of an error")),
      prompt_tokens_(counter_family(registry_, "terrace_prompt_tokens_total",
                                    "Prompt tokens of answered requests, cached or computed")
                         .Add({})),
      generated_tokens_(
          counter_family(registry_, "terrace_generation_tokens_total", "Tokens generated").Add({})),
      time_to_first_token_(histogram(
          registry_, "terrace_time_to_first_token_seconds",
          "From the arrival of a request to its first token, waiting included", kLatencySeconds)),
      time_per_output_token_(histogram(registry_, "terrace_time_per_output_token_seconds",
                                       "Mean time between the tokens of a request, after the first",
                                       kTokenSeconds)),
      end_to_end_(histogram(registry_, "terrace_e2e_request_latency_seconds",
                            "From the arrival of a request to its answer", kLatencySeconds)),
      request_prompt_tokens_(histogram(registry_, "terrace_request_prompt_tokens",
                                       "Length of the prompt of answered requests",
                                       kPromptTokens)) {
  auto& cached =
      counter_family(registry_, "terrace_cached_prompt_tokens_total",
                     "Prompt tokens that were not computed, by the place they were found in");
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    cached_tokens_[place] = &cached.Add({{"place", to_string(place)}});
  }
}

void RequestMetrics::answered(const AnsweredRequest& request) {
  requests_.Add({{"outcome", request.finish_reason}}).Increment();
  prompt_tokens_.Increment(request.prompt_tokens);
  generated_tokens_.Increment(request.completion_tokens);
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    cached_tokens_[place]->Increment(request.cached_tokens[place]);
  }
  time_to_first_token_.Observe(request.time_to_first_token.count());
  end_to_end_.Observe(request.end_to_end.count());
  request_prompt_tokens_.Observe(request.prompt_tokens);
  if (request.completion_tokens < 2) return;
  const auto decode = request.end_to_end - request.time_to_first_token;
  time_per_output_token_.Observe(decode.count() / (request.completion_tokens - 1));
}

void RequestMetrics::refused(int http_status) {
  requests_.Add({{"outcome", "http_" + std::to_string(http_status)}}).Increment();
}

}  // namespace terrace::serve
