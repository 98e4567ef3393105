#include "sim/scenario.hpp"

#include <algorithm>

#include "sim/arena_request.hpp"
#include "sim/pool_request.hpp"

namespace terrace::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kDramBlocksMin = 8;  // below an NVMe tier
constexpr std::uint32_t kNvmeBlocksMin = 8;
// Everything ends sooner or later: the longest that a request can be lost, one after the other.
constexpr auto kPatience = 10'000s;

// Every 5 s, while time may pass in steps of two.
constexpr auto kSyncsWithin = 10s;

BlockSet both(BlockSet a, const BlockSet& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] && b[i];
  return a;
}

BlockSet without(BlockSet a, const BlockSet& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] && !b[i];
  return a;
}

std::uint64_t count(const BlockSet& set) {
  return static_cast<std::uint64_t>(std::ranges::count(set, true));
}

}  // namespace

Scenario::Scenario(const Config& config, const std::string& folder)
    : config_(config),
      world_(config),
      random_(config.seed, "scenario"),
      universe_(Random(config.seed, "universe")),
      hardware_(world_),
      folder_(folder) {
  legacy_.warm = legacy_.durable = legacy_.suspect = BlockSet(universe_.block_count(), false);
  sizes_ = any_sizes();
  tasks_max_ = random_.between(1, 6);
  calm_ = static_cast<std::uint32_t>(random_.skewed(1, 6));
}

Outcome Scenario::run() {
  begin_life();
  for (std::uint32_t i = 0; i < config_.operations && !world_.failed(); ++i) step();
  if (live()) end_life(true);
  if (!world_.failed() && life_ == nullptr) begin_life();
  if (live()) serve_everything();
  if (live()) end_life(true);
  tasks_.clear();
  life_.reset();
  coverage_.faults = world_.faults().hits();
  coverage_.runs = hardware_.runs();
  return {coverage_, world_.failure()};
}

bool Scenario::live() {
  if (world_.crashed()) {
    bury();
    begin_life();
  }
  return !world_.failed();
}

// ---- Sizes.

Sizes Scenario::any_sizes() {
  const std::uint32_t all = universe_.block_count();
  Sizes sizes;
  sizes.with_index = random_.one_in(2);
  sizes.roomy = random_.one_in(4);
  const bool has_hbm = !random_.one_in(5);
  const bool has_dram = !has_hbm || !random_.one_in(5);
  const bool has_nvme = has_dram && !random_.one_in(5);
  if (sizes.roomy) {
    // Every task may hold private copies of a whole chain beside what is published.
    sizes.hbm_blocks = has_hbm ? 2 * all + 100 : 0;
    sizes.dram_blocks = has_dram ? all + kDramBlocksMin : 0;
    sizes.nvme_blocks = has_nvme ? all + kNvmeBlocksMin : 0;
  } else {
    sizes.hbm_blocks = has_hbm ? 1 + random_.below(random_.one_in(2) ? all : 16) : 0;
    sizes.dram_blocks =
        has_dram ? (has_nvme ? kDramBlocksMin : 1) + random_.below(random_.one_in(2) ? all : 8) : 0;
    sizes.nvme_blocks = has_nvme ? kNvmeBlocksMin + random_.below(random_.one_in(2) ? all : 8) : 0;
  }
  sizes.pool_slots = !has_hbm || random_.one_in(3) ? random_.between(4, 40) : 0;
  sizes.disks = random_.one_in(2) ? 1 : random_.between(2, 3);
  const std::uint64_t record_bytes = universe_.record_bytes();
  if (has_nvme && !sizes.roomy && random_.one_in(4))
    sizes.write_bytes_per_day = record_bytes * random_.skewed(24, 8);
  if (has_nvme && random_.one_in(3))
    sizes.scrub_bytes_per_second = record_bytes * random_.skewed(1, 12);
  sizes.queue_depth = random_.between(1, 24);
  sizes.fetches_max = random_.between(1, 8);
  sizes.layer_copy_bytes = static_cast<std::uint32_t>(random_.skewed(64, 8));
  return sizes;
}

// Another cache over the same directory, mostly of the same size.
void Scenario::resize() {
  const Sizes other = any_sizes();
  if (sizes_.roomy || !random_.one_in(3)) return;
  if (sizes_.hbm_blocks > 0 && other.hbm_blocks > 0) sizes_.hbm_blocks = other.hbm_blocks;
  if (sizes_.dram_blocks > 0) sizes_.dram_blocks = std::max(other.dram_blocks, kDramBlocksMin);
  if (sizes_.nvme_blocks > 0) sizes_.nvme_blocks = std::max(other.nvme_blocks, kNvmeBlocksMin);
  sizes_.queue_depth = other.queue_depth;
  sizes_.layer_copy_bytes = other.layer_copy_bytes;
}

// ---- Lives.

void Scenario::begin_life() {
  const Life::Surroundings around{world_, universe_, hardware_, coverage_, folder_};
  life_.reset();
  for (int tries = 0; life_ == nullptr && tries < 200 && !world_.failed(); ++tries) {
    const FaultPlan before = world_.faults();
    life_ = Life::open(around, sizes_, ++incarnation_);
    world_.note("life " + std::to_string(incarnation_) + (life_ ? " begins" : " does not open"));
    if (world_.crashed()) {
      // In the middle of open(): the next one must find what this one should have found.
      life_.reset();
      restart();
    } else if (life_ != nullptr) {
      check_legacy(before);
    }
  }
  world_.check(life_ != nullptr, "a cache does not open, however often it is tried");
}

// I21: what was on NVMe is warm, and what nobody has written is not there.
void Scenario::check_legacy(const FaultPlan& before) {
  if (!life_->mirror().knows()) return;
  const BlockSet found = life_->mirror().residents(kNvme0);
  const auto unread = [](const FaultPlan& faults) {
    return faults.hits(Fault::read_error) + faults.hits(Fault::lost_request) +
           faults.hits(Fault::drive_death) + faults.hits(Fault::dead_drive);
  };
  const bool was_cut = sizes_.nvme_blocks < legacy_.nvme_blocks;
  const bool is_all_read = !was_cut && unread(world_.faults()) == unread(before);
  if (world_.faults().lies() == 0 && is_all_read) {
    const BlockSet sure = without(legacy_.warm, legacy_.suspect);
    const std::uint64_t expected = count(sure);
    const std::uint64_t warm = count(both(sure, found));
    world_.check(expected - warm <= legacy_.may_miss, "I21: a block that was on NVMe is not warm");
    coverage_.warm_expected += expected;
    coverage_.warm_found += warm;
  }
  const bool is_orderly = legacy_.is_orderly && world_.faults().failures() == 0;
  world_.check(!is_orderly || count(without(found, legacy_.warm)) == 0,
               "a block that had been dropped is back after a restart");
  // Where slots were cut off, or not read, an older record of a block may be found in place of its newest.
  const BlockSet suspect =
      is_all_read ? without(found, without(legacy_.warm, legacy_.suspect)) : found;
  life_->set_suspect(suspect);
  life_->mirror().set_durable(both(legacy_.durable, found));
  legacy_ = {found, both(legacy_.durable, found), suspect, 0, sizes_.nvme_blocks, false};
}

// I18, I25: with time, everything comes to its end.
void Scenario::finish_tasks() {
  life_->settle();
  const Clock::Time end = world_.now() + kPatience;
  while (!tasks_.empty() && !world_.failed() && !world_.crashed()) {
    for (const auto& task : tasks_) task->step();
    std::erase_if(tasks_, [](const auto& task) { return task->over(); });
    poll(1);
    world_.check(world_.now() < end, "I18: a request does not come to its end");
  }
}

void Scenario::end_life(bool at_rest) {
  world_.note(at_rest ? "close at rest" : "close");
  if (at_rest) {
    finish_tasks();
    if (!world_.crashed() && !world_.failed()) life_->check_at_rest();
  }
  if (world_.crashed() || world_.failed()) return;
  // Between what it is told and its end there need not be one round of the pump.
  if (random_.one_in(4)) drop();
  life_->close();
  finish_tasks();  // leases outlive the cache
  if (!world_.crashed()) bury();
}

// What a life leaves to the next one. If the process has died, what it would still have done no
// longer reaches anything.
void Scenario::bury() {
  life_->mirror().read(life_->cache());
  legacy_.warm = life_->mirror().survivors();
  legacy_.durable =
      life_->mirror().durable(world_.crashed() ? hardware_.durable_until() : Clock::Time{0});
  legacy_.suspect = life_->mirror().suspect();
  check_syncs();
  legacy_.may_miss = 0;
  // Without an index, recovery finds every record that nobody has overwritten.
  legacy_.is_orderly = !world_.crashed() && sizes_.with_index;
  tasks_.clear();
  life_.reset();
  if (world_.crashed()) restart();
  resize();
}

// I21: after some seconds, what was written is safe from a power cut.
void Scenario::check_syncs() {
  if (!world_.crashed() || world_.faults().failures() > 0 || !life_->mirror().knows()) return;
  const Clock::Time long_ago = world_.crash_time() - kSyncsWithin;
  const BlockSet old = life_->mirror().durable(long_ago);
  world_.check(count(without(old, legacy_.durable)) == 0,
               "I21: what was written long ago is not safe from a power cut");
}

void Scenario::restart() {
  if (hardware_.last_crash() == Crash::power_cut) {
    legacy_.warm = legacy_.durable;
  } else {
    legacy_.may_miss += hardware_.updates_lost();
  }
  world_.restart();
}

// ---- Steps.

void Scenario::step() {
  act();
  if (life_ != nullptr && !world_.failed()) {
    poll(random_.below(4));
    life_->observe();
  }
  (void)live();
}

void Scenario::poll(std::uint32_t rounds) {
  for (; rounds > 0; --rounds) {
    life_->poll();
    for (const auto& task : tasks_) task->watch();
  }
}

void Scenario::act() {
  hardware_.wear();
  switch (random_.below(64)) {
    case 0:
      return flush();
    case 1:
      return drop();
    case 2:
      return replace_pool();
    case 3:
      return random_.one_in(4) ? sleep() : poll(random_.below(60));
    case 4:
      return random_.one_in(calm_) ? arm_crash() : step_task();
    case 5: {
      if (!random_.one_in(calm_)) return;
      end_life(random_.one_in(2));
      if (life_ == nullptr) begin_life();
      return;
    }
    default:
      return random_.one_in(4) ? start_task() : step_task();
  }
}

std::unique_ptr<Task> Scenario::new_task(const Chain& chain, std::uint32_t prompt_tokens) {
  const bool has_pool = life_->pool() != nullptr;
  if (has_pool && (life_->sizes().hbm_blocks == 0 || random_.one_in(2)))
    return std::make_unique<PoolRequest>(*life_, chain, prompt_tokens);
  return std::make_unique<ArenaRequest>(*life_, chain, prompt_tokens);
}

void Scenario::start_task() {
  if (tasks_.size() >= tasks_max_) return step_task();
  const auto& chains = universe_.chains();
  const Chain& chain = chains[random_.below(static_cast<std::uint32_t>(chains.size()))];
  const auto tokens = static_cast<std::uint32_t>(chain.tokens.size());
  tasks_.push_back(new_task(chain, random_.one_in(3) ? random_.between(1, tokens) : tokens));
}

void Scenario::step_task() {
  if (tasks_.empty()) return;
  const std::uint32_t chosen = random_.below(static_cast<std::uint32_t>(tasks_.size()));
  tasks_[chosen]->step();
  std::erase_if(tasks_, [](const auto& task) { return task->over(); });
}

// Nobody asks for anything for a while.
void Scenario::sleep() {
  const Clock::Time end = world_.now() + 1ms * random_.skewed(1, 17);
  while (world_.now() < end && !world_.crashed()) {
    world_.clock()->skip(500ms);
    poll(1);
  }
}

void Scenario::flush() {
  world_.note("flush");
  ++coverage_.flushes;
  const auto timeout = Clock::Time(static_cast<Clock::Time::rep>(random_.skewed(1'000, 26)));
  const auto flushed = life_->cache().flush(timeout);
  world_.check(flushed || flushed.error().code == Code::deadline_exceeded, "flush() failed");
  if (!flushed) return;
  life_->observe();
  world_.check(life_->cache().stats().spill_backlog_blocks == 0, "a backlog after flush()");
}

void Scenario::drop() {
  world_.note("drop");
  ++coverage_.drops;
  std::vector<PlaceId> places;
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    // Where everything fits, everything must stay in the lowest place.
    const bool lowest = place == kNvme0 || (place == kDram0 && sizes_.nvme_blocks == 0) ||
                        (place == kHbm0 && sizes_.dram_blocks == 0);
    if (random_.one_in(2) && !(sizes_.roomy && lowest)) places.push_back(place);
  }
  const auto dropped = life_->cache().drop(places, 100ms);
  if (!dropped) {
    world_.check(dropped.error().code == Code::deadline_exceeded, "drop() failed");
    return;
  }
  const Stats stats = life_->cache().stats();
  life_->mirror().read(life_->cache());
  for (const PlaceId place : places) {
    world_.check(!life_->mirror().knows() ||
                     life_->mirror().present(place) == stats.places[place].pinned_blocks,
                 "drop() left a block that nobody holds");
  }
}

void Scenario::replace_pool() {
  if (life_->pool() == nullptr) return;
  world_.note("replace the pool");
  const auto forget_requests = [this] {
    std::erase_if(tasks_, [](const auto& task) {
      return dynamic_cast<const PoolRequest*>(task.get()) != nullptr;
    });
  };
  if (random_.one_in(2)) forget_requests();
  life_->take_pool_back();
  forget_requests();
  life_->lend_pool();
}

void Scenario::arm_crash() {
  const bool power = random_.one_in(2);
  const std::uint32_t steps = static_cast<std::uint32_t>(random_.skewed(1, 10));
  const Fault fault = power ? Fault::power_cut : Fault::kill;
  if (world_.armed() || !world_.faults().possible(fault)) return;
  world_.note(std::string("arm ") + to_string(fault));
  world_.arm(steps, [this, power, fault] {
    world_.faults().count(fault);
    hardware_.crash(power ? Crash::power_cut : Crash::kill);
  });
}

// Every prompt once more, in a cache that has just started.
void Scenario::serve_everything() {
  for (const Chain& chain : universe_.chains()) {
    tasks_.push_back(new_task(chain, static_cast<std::uint32_t>(chain.tokens.size())));
    finish_tasks();
    if (world_.crashed() || world_.failed()) return;
    life_->observe();
  }
}

}  // namespace terrace::sim
