// Names, units and values of what /metrics tells of the cache and of requests.
#include <gtest/gtest.h>

#include <regex>

#include "serve/cache_metrics.hpp"
#include "serve/request_metrics.hpp"

namespace terrace::serve {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

const MetricFamily& family(const std::vector<MetricFamily>& families, const std::string& name) {
  for (const auto& candidate : families) {
    if (candidate.name == name) return candidate;
  }
  throw std::out_of_range(name);
}

TEST(CacheMetrics, NamesFollowTheConventions) {
  const std::regex name("terrace_[a-z0-9_]+");
  auto families = cache_metrics(Stats{});
  for (auto& family : RequestMetrics().collect()) families.push_back(family);
  EXPECT_GT(families.size(), 30u);
  for (const MetricFamily& family : families) {
    EXPECT_TRUE(std::regex_match(family.name, name)) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_EQ(family.type == MetricType::Counter, family.name.ends_with("_total")) << family.name;
  }
}

TEST(CacheMetrics, OneSeriesAPlace) {
  Stats stats;
  stats.places[kNvme0].corrupt_blocks = 3;
  stats.places[kDram0].used_blocks = 5;
  stats.places[kDram0].block_stride_bytes = 4096;
  stats.nvme_io_uring = true;
  stats.spill_backlog_blocks = 9;
  stats.nvme_unanswered_blocks = 7;
  const auto families = cache_metrics(stats);
  const auto& corrupt = family(families, "terrace_cache_corrupt_blocks_total").metric;
  ASSERT_EQ(corrupt.size(), std::size_t{kPlaceCount});
  EXPECT_EQ(corrupt[kNvme0].label[0].value, "nvme");
  EXPECT_EQ(corrupt[kNvme0].counter.value, 3);
  EXPECT_EQ(corrupt[kHbm0].counter.value, 0);
  EXPECT_EQ(family(families, "terrace_cache_used_bytes").metric[kDram0].gauge.value, 5 * 4096);
  EXPECT_EQ(family(families, "terrace_cache_spill_backlog_blocks").metric[0].gauge.value, 9);
  EXPECT_EQ(family(families, "terrace_cache_nvme_unanswered_blocks").metric[0].gauge.value, 7);
}

TEST(RequestMetrics, CountsAnswersAndRefusals) {
  using std::chrono::milliseconds;
  RequestMetrics metrics;
  metrics.answered({"length", 100, 11, {64, 16, 0}, milliseconds(250), milliseconds(1250)});
  metrics.answered({"stop", 10, 1, {}, milliseconds(1), milliseconds(1)});
  metrics.refused(400);
  const auto families = metrics.collect();
  EXPECT_EQ(family(families, "terrace_requests_total").metric.size(), 3u);
  EXPECT_EQ(family(families, "terrace_prompt_tokens_total").metric[0].counter.value, 110);
  EXPECT_EQ(family(families, "terrace_generation_tokens_total").metric[0].counter.value, 12);
  const auto& per_token =
      family(families, "terrace_time_per_output_token_seconds").metric[0].histogram;
  EXPECT_EQ(per_token.sample_count, 1u);  // an answer of one token has no time between tokens
  EXPECT_DOUBLE_EQ(per_token.sample_sum, 0.1);
  EXPECT_DOUBLE_EQ(
      family(families, "terrace_time_to_first_token_seconds").metric[0].histogram.sample_sum,
      0.251);
  for (const auto& series : family(families, "terrace_cached_prompt_tokens_total").metric) {
    const double expected = series.label[0].value == "hbm"    ? 64
                            : series.label[0].value == "dram" ? 16
                                                              : 0;
    EXPECT_EQ(series.counter.value, expected) << series.label[0].value;
  }
}

}  // namespace
}  // namespace terrace::serve
