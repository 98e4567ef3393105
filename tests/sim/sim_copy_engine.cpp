#include "sim/sim_copy_engine.hpp"

namespace terrace::sim {
namespace {

constexpr unexpected kFailed = fail(Code::io_error, "the simulated device has failed");
constexpr unexpected kFull = fail(Code::retry_later, "the simulated device's queue is full");

}  // namespace

// ---- Memory and streams.

Result<std::byte*> SimCopyEngine::allocate(std::size_t bytes) {
  if (world_.strikes(Fault::no_device_memory))
    return fail(Code::out_of_memory, "the simulated device has no memory left");
  auto base = inner_->allocate(bytes);
  if (base) held_.insert(*base);
  return base;
}

void SimCopyEngine::deallocate(std::byte* base) noexcept {
  world_.check(held_.erase(base) == 1, "memory was given back that nobody had");
  inner_->deallocate(base);
}

Result<void> SimCopyEngine::pin(std::byte* base, std::size_t) {
  if (world_.strikes(Fault::no_pinning))
    return fail(Code::unsupported, "the simulated device pins no memory");
  held_.insert(base);
  return {};
}

Result<StreamId> SimCopyEngine::create_stream() {
  if (world_.strikes(Fault::no_stream))
    return fail(Code::out_of_memory, "the simulated device has no stream left");
  auto stream = inner_->create_stream();
  if (stream) streams_.insert(*stream);
  return stream;
}

void SimCopyEngine::destroy_stream(StreamId stream) noexcept {
  world_.check(streams_.erase(stream) == 1, "a stream was destroyed that nobody had");
  inner_->destroy_stream(stream);
}

// ---- Work.

Result<void> SimCopyEngine::copy(StreamId stream, std::span<const Copy> copies) {
  world_.step();
  if (has_failed()) return kFailed;
  if (world_.strikes(Fault::copy_refused)) return kFull;
  return inner_->copy(stream, copies);
}

Result<StreamPoint> SimCopyEngine::record(StreamId stream) {
  if (has_failed()) return kFailed;
  if (world_.strikes(Fault::record_refused)) return kFull;
  return inner_->record(stream);
}

Result<void> SimCopyEngine::wait(StreamId stream, StreamPoint point) {
  if (has_failed()) return kFailed;
  if (world_.strikes(Fault::wait_refused)) return kFull;
  if (world_.config().canary == Canary::deaf_wait) return {};
  return inner_->wait(stream, point);
}

// What had passed before the failure, has passed.
PointState SimCopyEngine::query(StreamPoint point) noexcept {
  const PointState state = inner_->query(point);
  return state == PointState::pending && has_failed() ? PointState::failed : state;
}

PointState SimCopyEngine::synchronize(StreamPoint point) noexcept {
  return has_failed() ? query(point) : inner_->synchronize(point);
}

bool SimCopyEngine::progress(std::size_t budget_bytes) {
  world_.look();
  if (world_.strikes(Fault::device_failure)) failed_ = true;
  if (has_failed() || world_.strikes(Fault::idle_device)) return true;
  const std::size_t budget = std::min<std::size_t>(world_.luck().skewed(1024, 14), budget_bytes);
  if (inner_->progress(budget)) world_.clock()->stir();
  return true;
}

}  // namespace terrace::sim
