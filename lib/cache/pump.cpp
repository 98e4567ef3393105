// The pump, and what waits for it: poll, flush, drop, close; pools; numbers.
#include <algorithm>

#include "base/assert.hpp"
#include "cache/core.hpp"

namespace terrace::internal {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

constexpr std::size_t kCopyBudgetBytes = 16 * MiB;  // of a device that works inside progress()
constexpr nanoseconds kDeviceLook = 50us;   // between two looks at a device that cannot wake us
constexpr nanoseconds kDriverSleep = 50ms;  // a bound: every submission wakes the driver
constexpr nanoseconds kCloseFlush = 10s;
constexpr nanoseconds kCloseDrain = 30s;

}  // namespace

bool Core::poll(nanoseconds timeout) {
  if (forked()) return false;
  const std::unique_lock pump(pump_, std::try_to_lock);
  if (!pump.owns_lock()) {
    // Somebody else polls; what he moves is moved.
    if (timeout > 0ns) std::this_thread::sleep_for(std::min(timeout, kDeviceLook));
    return false;
  }
  if (drained_) return false;
  std::uint32_t lost_drives = 0;
  bool moved = options_.device->progress(kCopyBudgetBytes);
  moved |= mover_->reap();
  {
    const Locked guard(*this);
    moved |= mover_->tick();
    lost_drives = mover_->take_lost_drives();
  }
  moved |= mover_->submit();
  if (lost_drives > 0) {
    log(LogLevel::error, "NVMe: a drive fails, and is out of service: its blocks are lost");
  }
  if (!moved && timeout > 0ns) {
    waker_.wait(mover_->drives(),
                mover_->device_may_work() ? std::min(timeout, kDeviceLook) : timeout);
  }
  return moved;
}

void Core::wake() noexcept {
  if (options_.driver_thread) waker_.wake();
}

void Core::drive() {
  while (!stop_driver_) poll(kDriverSleep);
}

// Returns: false where `is_done` did not become true in time.
template <class IsDone>
bool Core::poll_until(nanoseconds timeout, const IsDone& is_done) {
  const nanoseconds end = options_.clock->now() + timeout;
  for (;;) {
    {
      const std::lock_guard guard(lock_);
      if (is_done()) return true;
    }
    if (options_.clock->now() >= end) return false;
    poll(1ms);
  }
}

Result<void> Core::flush(nanoseconds timeout) {
  if (forked()) return fail(Code::closed, "the cache belongs to the parent process");
  if (closed_) return fail(Code::closed, "the cache is closed");
  if (poll_until(timeout, [this] { return !mover_->has_backlog(); })) return {};
  return fail(Code::deadline_exceeded,
              "some blocks have not reached the lowest place yet: flush again");
}

Result<std::uint64_t> Core::drop(std::span<const PlaceId> places, nanoseconds timeout) {
  if (std::ranges::any_of(places, [](PlaceId place) { return place >= kPlaceCount; })) {
    return fail(Code::invalid_argument, "no such place");
  }
  if (auto flushed = flush(timeout); !flushed) return unexpected(flushed.error());
  const Locked guard(*this);
  std::uint64_t count = 0;
  for (const PlaceId place : places) count += mover_->drop(place);
  return count;
}

Result<void> Core::close() {
  if (forked()) return fail(Code::closed, "the cache belongs to the parent process");
  if (closed_.exchange(true)) return fail(Code::closed, "the cache is closed");
  stop_driver_ = true;
  waker_.wake();
  if (driver_.joinable()) driver_.join();
  const bool written = poll_until(kCloseFlush, [this] { return !mover_->has_backlog(); });
  {
    const Locked guard(*this);
    mover_->cancel_all();
  }
  const bool drained = poll_until(kCloseDrain, [this] { return mover_->idle(); });
  {
    const std::lock_guard pump(pump_);  // whoever was inside poll() has left it
    drained_ = true;
  }
  Result<void> closed;
  if (tiers_->nvme != nullptr) {
    closed = tiers_->nvme->close();
    const Locked guard(*this);
    nvme_ = describe_nvme();
    tiers_->nvme.reset();
  }
  mover_->close();
  if (!closed) return closed;
  if (!written || !drained)
    return fail(Code::deadline_exceeded, "some blocks were not written before the cache closed");
  return {};
}

Core::~Core() {
  if (forked()) {  // what cannot be ended here is left as it is
    if (driver_.joinable()) driver_.detach();
    (void)mover_.release();
    (void)store_.release();
    (void)tiers_.release();
    return;
  }
  if (mover_ != nullptr && !closed_) (void)close();
  if (tiers_ == nullptr) return;
  if (tiers_->dram.pinned) options_.device->unpin(tiers_->dram.memory.bytes().data());
  if (tiers_->hbm.base != nullptr) options_.device->deallocate(tiers_->hbm.base);
}

// ---- Pools.

Result<PoolId> Core::register_pool(PoolDescription description) {
  if (closed_) return fail(Code::closed, "the cache is closed");
  const Layout& layout = tiers_->layout;
  Pool pool;
  pool.slot_count = description.slot_count;
  pool.regions.resize(std::size_t{layout.layer_count()} * 2);
  if (description.regions.size() != pool.regions.size()) {
    return fail(Code::invalid_argument, "a pool has one region for K and one for V of each layer");
  }
  for (const PoolRegion& region : description.regions) {
    if (region.layer >= layout.layer_count() || region.component > 1 || region.base == nullptr) {
      return fail(Code::invalid_argument,
                  "a region's layer or component is outside the layout, or its base is null");
    }
    if (region.bytes != layout.component_slice(region.layer, region.component).bytes) {
      return fail(Code::invalid_argument,
                  "a region's bytes differ from the layout's for that layer");
    }
    PoolRegion& place = pool.regions[std::size_t{region.layer} * 2 + region.component];
    if (place.base != nullptr)
      return fail(Code::invalid_argument, "two regions for one component of one layer");
    place = region;
  }
  const Locked guard(*this);
  mover_->pools().push_back(std::move(pool));
  return PoolId{static_cast<std::uint32_t>(mover_->pools().size() - 1)};
}

// However long it takes: the pool's memory is the engine's again afterwards. What a slow drive still
// has to bring is not waited for, copies are.
void Core::unregister_pool(PoolId id) {
  {
    const Locked guard(*this);
    mover_->cancel_into(id.index);
  }
  const auto is_free = [this, id] { return mover_->pools()[id.index].operations == 0; };
  while (!poll_until(kCloseDrain, is_free) && !closed_) {
  }
  const Locked guard(*this);
  mover_->pools()[id.index].regions.clear();
}

// ---- Numbers.

NvmeTier::Facts Core::describe_nvme() const {
  return tiers_->nvme == nullptr ? nvme_ : tiers_->nvme->facts();
}

Stats Core::stats() {
  const std::lock_guard guard(lock_);
  Stats stats = store_->snapshot();
  const std::uint64_t strides[] = {tiers_->hbm.stride_bytes, tiers_->dram.stride_bytes,
                                   tiers_->format.record_bytes()};
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    stats.places[place].block_stride_bytes = strides[place];
    stats.places[place].capacity_bytes = strides[place] * stats.places[place].capacity_blocks;
  }
  stats.spill_backlog_blocks = mover_->backlog_blocks();
  stats.nvme_unanswered_blocks = mover_->unanswered_blocks();
  stats.hbm_is_host = options_.device->name() == "host";
  stats.dram_pinned = tiers_->dram.pinned;
  stats.dram_huge_pages = tiers_->dram.memory.huge_pages();
  const NvmeTier::Facts facts = describe_nvme();
  stats.nvme_io_uring = facts.device.io_uring;
  stats.nvme_direct = facts.device.direct;
  stats.nvme_registered_buffers = facts.device.registered_buffers;
  stats.nvme_index = facts.index;
  stats.index_failures = facts.index_failures;
  stats.nvme_bytes_worn += facts.index_bytes_written;
  stats.nvme_drives = facts.drives;
  stats.nvme_drives_failed = facts.drives_failed;
  return stats;
}

std::size_t Core::read_events(std::uint64_t from, std::span<Event> out) {
  const std::lock_guard guard(lock_);
  return store_->events().read(from, out);
}

std::byte* Core::data(Slot slot) {
  {
    const std::lock_guard guard(lock_);
    TERRACE_ASSERT(slot.index < tiers_->hbm.slot_count, slot.index);
    TERRACE_ASSERT(store_->pool(kHbm0).generation(slot.index) == slot.generation, slot.generation);
  }
  return tiers_->hbm.data(slot.index);
}

}  // namespace terrace::internal
