#include "sim/life.hpp"

#include <algorithm>

#include "cache/core.hpp"
#include "sim/forgetful_policy.hpp"

namespace terrace::sim {
namespace {

using namespace std::chrono_literals;

// What close() may take: 10 s to flush, 30 s to drain, and the steps of the clock.
constexpr auto kCloseMax = 46s;
// Requests may be lost one after another, each for up to an hour.
constexpr auto kRestMax = 100'000s;

constexpr std::size_t kStreams = 3;

constexpr std::uint64_t PlaceStats::*kPlaceCounters[] = {
    &PlaceStats::hit_blocks,     &PlaceStats::hit_tokens,     &PlaceStats::stored_blocks,
    &PlaceStats::evicted_blocks, &PlaceStats::dropped_blocks, &PlaceStats::bytes_read,
    &PlaceStats::bytes_written,  &PlaceStats::io_errors,      &PlaceStats::corrupt_blocks,
};
constexpr std::uint64_t Stats::*kCounters[] = {
    &Stats::nvme_shed_blocks, &Stats::nvme_bytes_worn,  &Stats::scrubbed_blocks,
    &Stats::index_failures,   &Stats::queries,          &Stats::query_tokens,
    &Stats::query_blocks,     &Stats::miss_tokens,      &Stats::miss_blocks,
    &Stats::failed_blocks,    &Stats::committed_blocks, &Stats::duplicate_blocks,
    &Stats::recovered_blocks,
};

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

// ---- Opening.

Life::Life(const Surroundings& around, const Sizes& sizes, std::uint64_t incarnation)
    : around_(around),
      sizes_(sizes),
      incarnation_(incarnation),
      failures_before_(around.world.faults().failures()),
      buffers_(around.universe.layout().block_bytes()),
      device_(std::make_shared<SimCopyEngine>(around.world, around.world.luck().next() | 1)),
      mirror_(std::make_unique<Mirror>(around.world, around.universe, incarnation)),
      born_(around.world.now()),
      written_before_(around.hardware.bytes_written()),
      given_(around.universe.block_count(), false) {}

std::unique_ptr<Life> Life::open(const Surroundings& around, const Sizes& sizes,
                                 std::uint64_t incarnation) {
  std::unique_ptr<Life> life(new Life(around, sizes, incarnation));
  if (!life->open_cache()) return nullptr;
  ++around.coverage.lives;
  return life;
}

Options Life::options() {
  const std::uint64_t record_bytes = universe().record_bytes();
  Options options;
  options.hbm_bytes = sizes_.hbm_blocks * round_up(universe().layout().block_bytes(), 256);
  options.dram_bytes = sizes_.dram_blocks * record_bytes;
  if (sizes_.nvme_blocks > 0) {
    for (std::uint32_t disk = 0; disk < sizes_.disks; ++disk)
      options.nvme_paths.push_back(around_.folder + "/drive" + std::to_string(disk));
    // As a directory divides its bytes: something fixed, and 32 bytes a record for the file system.
    options.nvme_bytes = sizes_.disks * (64 * KiB + sizes_.nvme_blocks * (record_bytes + 32));
  }
  options.nvme_write_bytes_per_day = sizes_.write_bytes_per_day;
  options.nvme_scrub_bytes_per_second = sizes_.scrub_bytes_per_second;
  options.huge_pages = false;
  options.prefault = false;
  options.io_queue_depth = sizes_.queue_depth;
  options.fetches_max = sizes_.fetches_max;
  options.layer_copy_bytes = sizes_.layer_copy_bytes;
  options.device = device_;
  options.clock = world().clock();
  options.block_device = [&hardware = around_.hardware](const BlockDeviceOptions& how) {
    return hardware.open_drive(how);
  };
  if (world().config().canary == Canary::forgetful_policy) options.eviction = make_forgetful_policy;
  return options;
}

bool Life::open_cache() {
  const auto refusals = [this] {
    const FaultPlan& faults = world().faults();
    return faults.hits(Fault::no_device_memory) + faults.hits(Fault::no_stream) +
           faults.hits(Fault::no_drive) + faults.hits(Fault::dead_drive) +
           faults.hits(Fault::drive_death) + faults.hits(Fault::lost_request);
  };
  const std::uint64_t refusals_before = refusals();
  internal::CoreSeams seams{.slot_index = {}, .incarnation = incarnation_};
  if (sizes_.with_index) {
    seams.slot_index = [&hardware = around_.hardware](const std::string& path) {
      return hardware.open_index(path);
    };
  }
  auto core = internal::Core::open(options(), universe().layout(), seams);
  if (!core) {
    ++coverage().opens_refused;
    world().check(refusals() > refusals_before || world().crashed(),
                  "open() failed without a reason");
    world().check(device_->held() == 0, "I28: a failed open() keeps something of the device");
    return false;
  }
  cache_ = std::make_unique<Cache>(internal::Core::handle(std::move(*core)));
  for (const ModelIdentity& identity : universe().models())
    models_.push_back(cache_->bind(identity).value());
  while (streams_.size() < kStreams) {
    if (const auto stream = device_->create_stream()) streams_.push_back(*stream);
  }
  if (sizes_.pool_slots > 0) lend_pool();
  observe();
  given_ = mirror_->residents(kNvme0);
  return true;
}

Life::~Life() {
  coverage().shed += last_.nvme_shed_blocks;
  coverage().scrubbed += last_.scrubbed_blocks;
  coverage().drives_lost += last_.nvme_drives_failed;
  coverage().digest ^= mirror_->digest() + incarnation_;
  if (cache_ == nullptr) return;
  models_.clear();
  cache_.reset();
  for (const StreamId stream : streams_) device_->destroy_stream(stream);
  world().check(device_->held() == 0, "I28: a closed cache keeps something of the device");
}

// ---- Living.

void Life::poll() {
  // A closed cache does nothing any more; the device and the leases live on.
  closed_ ? device_->progress(MiB) : cache_->poll();
}

void Life::take_pool_back() {
  cache_->unregister_pool(pool_id_);
  // The cache's copies have ended; the engine's own kernels are the engine's to wait for.
  auto last_use = device_->record(pool_stream());
  while (!last_use && !device_->has_failed()) last_use = device_->record(pool_stream());
  if (last_use) device_->synchronize(*last_use);
  pool_.reset();
}

void Life::lend_pool() {
  pool_ = std::make_unique<EnginePool>(universe().layout(), sizes_.pool_slots);
  pool_id_ = cache_->register_pool(pool_->description()).value();
}

std::uint32_t Life::room(PlaceId place) {
  if (!mirror_->knows()) return 0;
  mirror_->read(*cache_);
  const PlaceStats stats = cache_->stats().places[place];
  return stats.free_blocks + mirror_->present(place) - stats.pinned_blocks;
}

void Life::set_suspect(const BlockSet& suspect) {
  suspects_ = static_cast<std::uint64_t>(std::ranges::count(suspect, true));
  mirror_->set_suspect(suspect);
}

void Life::commit(BlockNumber block) {
  universe().block(block).committed = true;
}

void Life::committed(const CommitResult& result) {
  published_ += result.published;
  duplicates_ += result.duplicate;
  coverage().commits += result.published + result.duplicate;
}

void Life::ended_fetch(const FetchOp& op) {
  for (const BlockResult& result : op.results()) {
    if (!result.usable) continue;
    ++hits_[result.found_at];
    ++coverage().hits[result.found_at];
  }
}

void Life::started_fetch(std::uint64_t prompt_tokens) {
  ++fetches_;
  fetch_tokens_ += prompt_tokens;
  ++coverage().fetches;
}

bool Life::may_fail() const {
  FaultPlan& faults = around_.world.faults();
  return faults.failures() > failures_before_ || faults.lies() > 0 || suspects_ > 0 ||
         around_.world.crashed();
}

// ---- Looking.

void Life::observe() {
  mirror_->read(*cache_);
  const Stats stats = cache_->stats();
  check_slots(stats);
  check_counters(stats);
  check_drives(stats);
  last_ = stats;
}

void Life::check_slots(const Stats& stats) {
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    const PlaceStats& at = stats.places[place];
    world().check(at.free_blocks + at.used_blocks + at.quarantined_blocks == at.capacity_blocks,
                  "I16: free + used + quarantined != capacity");
    if (!mirror_->knows()) continue;
    const std::uint32_t kept =
        mirror_->count(place, BlockState::landing) + mirror_->count(place, BlockState::resident);
    world().check(at.used_blocks >= kept, "I16: fewer slots in use than copies");
    world().check(at.pinned_blocks <= mirror_->present(place), "I16: pins without copies");
    // In HBM there are private copies, too: of leases.
    world().check(place == kHbm0 || at.used_blocks <= mirror_->present(place),
                  "I16: a slot is in use by no copy");
  }
}

// I16: endurance. An hour's share may come at once.
void Life::check_drives(const Stats& stats) {
  const std::uint32_t drives = sizes_.nvme_blocks > 0 ? sizes_.disks : 0;
  world().check(stats.nvme_drives == drives, "a drive is not counted");
  world().check(stats.nvme_drives_failed == 0 || may_fail(), "a drive failed for no reason");
  if (sizes_.write_bytes_per_day == 0 || may_fail()) return;
  const double hours = std::chrono::duration<double>(world().now() - born_).count() / 3600;
  const double budget = static_cast<double>(sizes_.write_bytes_per_day) / 24 * (1 + hours);
  const std::uint64_t written = around_.hardware.bytes_written() - written_before_;
  world().check(static_cast<double>(written) <= budget, "more is written than the budget allows");
}

// Every arrival and departure is counted, in the statistics as in the events.
void Life::check_traffic(PlaceId place, const PlaceStats& at) {
  world().check(at.stored_blocks == mirror_->arrivals(place), "I25: arrivals are not counted");
  world().check(at.evicted_blocks + at.dropped_blocks == mirror_->departures(place),
                "I25: departures are not counted");
}

void Life::check_counters(const Stats& stats) {
  std::uint64_t tokens = stats.miss_tokens;
  std::uint64_t blocks = stats.miss_blocks;
  std::uint64_t io_errors = 0;
  std::uint64_t corrupt = 0;
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    const PlaceStats& at = stats.places[place];
    check_traffic(place, at);
    for (const auto counter : kPlaceCounters)
      world().check(at.*counter >= last_.places[place].*counter, "I26: a counter went back");
    tokens += at.hit_tokens;
    blocks += at.hit_blocks;
    io_errors += at.io_errors;
    corrupt += at.corrupt_blocks;
  }
  for (const auto counter : kCounters)
    world().check(stats.*counter >= last_.*counter, "I26: a counter went back");
  world().check(tokens == stats.query_tokens, "I26: hits + misses != queries, in tokens");
  world().check(blocks == stats.query_blocks, "I26: hits + misses != queries, in blocks");
  world().check(stats.queries <= fetches_, "I26: more queries than fetches");
  world().check(stats.committed_blocks >= published_ && stats.duplicate_blocks == duplicates_,
                "I26: commits are not counted");
  world().check(io_errors == 0 || may_fail(), "I25: an I/O error that nobody had");
  const bool explained = corrupt <= suspects_ || world().faults().lies() > 0;
  world().check(explained || !mirror_->knows(), "I11: a good record was found corrupt");
}

void Life::check_at_rest() {
  const auto flush = [this] {
    const auto flushed = cache_->flush(kRestMax);
    world().check(flushed.has_value(), "I17: at rest, flush() does not come to its end");
  };
  // Reads for a fetch that was given up may still be on their way, and scrubbing goes on; where one fails,
  // there may be something to spill again, while which the next record is scrubbed.
  const Clock::Time end = world().now() + kRestMax;
  const auto is_pinned = [this] {
    return std::ranges::any_of(cache_->stats().places, &PlaceStats::pinned_blocks);
  };
  for (flush(); !world().crashed() && is_pinned() && world().now() < end; flush()) {
    while (!world().crashed() && is_pinned() && world().now() < end) poll();
  }
  if (world().crashed()) return;
  observe();
  const Stats& stats = last_;
  world().check(stats.spill_backlog_blocks == 0, "a backlog after flush()");
  world().check(stats.nvme_unanswered_blocks == 0, "at rest, a drive still owes an answer");
  world().check(stats.queries == fetches_ && stats.query_tokens == fetch_tokens_,
                "I25: a fetch that never ended, or ended twice");
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    // A fetch that was abandoned may have had hits, too.
    world().check(stats.places[place].hit_blocks >= hits_[place], "I26: hits are not counted");
    world().check(stats.places[place].pinned_blocks == 0, "I16: a pin at rest");
    if (!mirror_->knows()) continue;
    world().check(stats.places[place].used_blocks == mirror_->count(place, BlockState::resident),
                  "I16: at rest, a slot is in use by no copy");
    world().check(mirror_->present(place) == mirror_->count(place, BlockState::resident),
                  "at rest, a block is neither absent nor resident");
  }
  ++coverage().at_rest;
  if (!sizes_.roomy || may_fail() || !mirror_->knows()) return;
  const PlaceId lowest = sizes_.nvme_blocks > 0 ? kNvme0 : sizes_.dram_blocks > 0 ? kDram0 : kHbm0;
  for (BlockNumber block = 0; block < given_.size(); ++block) {
    world().check(!given_[block] || mirror_->state(block, lowest) == BlockState::resident,
                  "a committed block is not in the lowest place, though there is room");
  }
}

void Life::close() {
  observe();
  const Clock::Time start = world().now();
  const auto result = cache_->close();
  closed_ = true;
  world().check(world().now() - start <= kCloseMax, "I18: close() does not come to its end");
  world().check(result.has_value() || may_fail() || !settling_, "close() failed without a reason");
  observe();
  if (result && !world().crashed()) {
    ++coverage().closed_well;
    mirror_->set_durable(mirror_->residents(kNvme0));
  }
  const auto is_closed = [](const auto& answer) {
    return !answer && answer.error().code == Code::closed;
  };
  const Chain& chain = universe().chains().front();
  world().check(is_closed(model(chain).match(chain.tokens, chain.scope)), "match() after close()");
  world().check(is_closed(cache_->flush(0s)), "flush() after close()");
  world().check(is_closed(cache_->close()), "close() after close()");
  world().check(!cache_->poll(), "poll() after close()");
}

}  // namespace terrace::sim
