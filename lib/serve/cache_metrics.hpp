// The cache's statistics as Prometheus metric families. A pure translation: one family a field, one
// series a place.
//
// Called by the /metrics handler.
// Thread rule: pure function.
#pragma once

#include <prometheus/metric_family.h>

#include <vector>

#include "terrace/stats.hpp"

namespace terrace::serve {

std::vector<prometheus::MetricFamily> cache_metrics(const Stats& stats);

}  // namespace terrace::serve
