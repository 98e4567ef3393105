#include "serve/cache_metrics.hpp"

#include <functional>
#include <string>

namespace terrace::serve {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

ClientMetric series(MetricType type, double value) {
  ClientMetric metric;
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return metric;
}

struct PlaceField {
  const char* name;
  MetricType type;
  const char* help;
  std::function<double(const PlaceStats&)> value;
};

// Bytes of `blocks` blocks as they lie in the place, padding included.
double bytes(const PlaceStats& place, std::uint64_t blocks) {
  return static_cast<double>(blocks * place.block_stride_bytes);
}

std::vector<PlaceField> place_fields() {
  constexpr auto gauge = MetricType::Gauge;
  constexpr auto counter = MetricType::Counter;
  using P = const PlaceStats&;
  return {
      {"terrace_cache_capacity_bytes", gauge, "Bytes of all slots; never above the configured cap",
       [](P p) { return static_cast<double>(p.capacity_bytes); }},
      {"terrace_cache_used_bytes", gauge, "Bytes of slots that hold a block",
       [](P p) { return bytes(p, p.used_blocks); }},
      {"terrace_cache_pinned_bytes", gauge,
       "Bytes of slots that cannot be evicted now: leased or in a copy",
       [](P p) { return bytes(p, p.pinned_blocks); }},
      {"terrace_cache_quarantined_bytes", gauge,
       "Bytes of slots whose block failed while it was leased",
       [](P p) { return bytes(p, p.quarantined_blocks); }},
      {"terrace_cache_capacity_blocks", gauge, "Slots",
       [](P p) { return double{} + p.capacity_blocks; }},
      {"terrace_cache_free_blocks", gauge, "Slots without a block",
       [](P p) { return double{} + p.free_blocks; }},
      {"terrace_cache_hit_blocks_total", counter, "Blocks of requests found here",
       [](P p) { return static_cast<double>(p.hit_blocks); }},
      {"terrace_cache_hit_tokens_total", counter, "Tokens of requests found here",
       [](P p) { return static_cast<double>(p.hit_tokens); }},
      {"terrace_cache_stored_blocks_total", counter, "Blocks that became resident here",
       [](P p) { return static_cast<double>(p.stored_blocks); }},
      {"terrace_cache_evicted_blocks_total", counter,
       "Blocks that left to make room; a copy stayed in another place",
       [](P p) { return static_cast<double>(p.evicted_blocks); }},
      {"terrace_cache_dropped_blocks_total", counter,
       "Blocks that left, and no copy stayed anywhere",
       [](P p) { return static_cast<double>(p.dropped_blocks); }},
      {"terrace_cache_read_bytes_total", counter, "Payload bytes read from here",
       [](P p) { return static_cast<double>(p.bytes_read); }},
      {"terrace_cache_written_bytes_total", counter, "Payload bytes written here",
       [](P p) { return static_cast<double>(p.bytes_written); }},
      {"terrace_cache_io_errors_total", counter, "Reads and writes that failed",
       [](P p) { return static_cast<double>(p.io_errors); }},
      {"terrace_cache_corrupt_blocks_total", counter,
       "Blocks that did not verify when read; never used",
       [](P p) { return static_cast<double>(p.corrupt_blocks); }},
  };
}

MetricFamily place_family(const PlaceField& field, const Stats& stats) {
  MetricFamily family{field.name, field.help, field.type, {}};
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    ClientMetric metric = series(field.type, field.value(stats.places[place]));
    metric.label.push_back({"place", to_string(place)});
    family.metric.push_back(std::move(metric));
  }
  return family;
}

struct CacheField {
  const char* name;
  MetricType type;
  const char* help;
  std::uint64_t value;
};

std::vector<CacheField> cache_fields(const Stats& s) {
  constexpr auto gauge = MetricType::Gauge;
  constexpr auto counter = MetricType::Counter;
  return {
      {"terrace_cache_queries_total", counter, "Look-ups that ended", s.queries},
      {"terrace_cache_query_tokens_total", counter, "Prompt tokens looked up", s.query_tokens},
      {"terrace_cache_query_blocks_total", counter, "Whole prompt blocks looked up",
       s.query_blocks},
      {"terrace_cache_miss_tokens_total", counter, "Prompt tokens found nowhere", s.miss_tokens},
      {"terrace_cache_miss_blocks_total", counter, "Prompt blocks found nowhere", s.miss_blocks},
      {"terrace_cache_failed_blocks_total", counter,
       "Blocks found but lost before they were used; also counted as misses", s.failed_blocks},
      {"terrace_cache_committed_blocks_total", counter, "Blocks computed and published",
       s.committed_blocks},
      {"terrace_cache_duplicate_blocks_total", counter,
       "Blocks computed although another producer was first", s.duplicate_blocks},
      {"terrace_cache_spill_backlog_blocks", gauge, "Blocks waiting to be written to a lower place",
       s.spill_backlog_blocks},
      {"terrace_cache_nvme_shed_blocks_total", counter,
       "Blocks not written to NVMe for want of write budget or drives", s.nvme_shed_blocks},
      {"terrace_cache_nvme_worn_bytes_total", counter,
       "Bytes written to the drives: payload, headers and index", s.nvme_bytes_worn},
      {"terrace_cache_nvme_unanswered_blocks", gauge,
       "Transfers that a drive has not answered within 30 s; each keeps a slot of DRAM",
       s.nvme_unanswered_blocks},
      {"terrace_cache_scrubbed_blocks_total", counter, "Records read and verified unasked",
       s.scrubbed_blocks},
      {"terrace_cache_nvme_drives", gauge, "Drives of the NVMe tier", s.nvme_drives},
      {"terrace_cache_nvme_drives_failed", gauge, "Of these, out of service", s.nvme_drives_failed},
      {"terrace_cache_index_failures_total", counter, "Failed changes of the restart index",
       s.index_failures},
      {"terrace_cache_recovered_blocks", gauge, "Blocks found on NVMe at start",
       s.recovered_blocks},
  };
}

// How the machine is used: 1 where the fast path was to be had.
MetricFamily mode_family(const Stats& stats) {
  const std::pair<const char*, bool> modes[] = {
      {"hbm_is_host", stats.hbm_is_host},
      {"dram_pinned", stats.dram_pinned},
      {"dram_huge_pages", stats.dram_huge_pages},
      {"nvme_io_uring", stats.nvme_io_uring},
      {"nvme_direct", stats.nvme_direct},
      {"nvme_registered_buffers", stats.nvme_registered_buffers},
      {"nvme_index", stats.nvme_index},
  };
  MetricFamily family{"terrace_cache_mode",
                      "1 where this way of using the machine is active",
                      MetricType::Gauge,
                      {}};
  for (const auto& [name, active] : modes) {
    ClientMetric metric = series(MetricType::Gauge, active ? 1 : 0);
    metric.label.push_back({"mode", name});
    family.metric.push_back(std::move(metric));
  }
  return family;
}

}  // namespace

std::vector<prometheus::MetricFamily> cache_metrics(const Stats& stats) {
  std::vector<MetricFamily> families;
  for (const PlaceField& field : place_fields()) families.push_back(place_family(field, stats));
  for (const CacheField& field : cache_fields(stats)) {
    families.push_back({field.name,
                        field.help,
                        field.type,
                        {series(field.type, static_cast<double>(field.value))}});
  }
  families.push_back(mode_family(stats));
  return families;
}

}  // namespace terrace::serve
