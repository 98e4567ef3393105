// The CUDA copy engine; see cuda_copy_engine.hpp. Compiled, not run.
#include <algorithm>

#include "cuda_call.hpp"
#include "cuda_copy_engine.hpp"
#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

// Some drivers refuse to register more in one piece.
constexpr std::size_t pin_step_bytes = 64 * GiB;
// From this size on, an allocation has pages of its own; smaller ones are aligned to 512 bytes
// only.
constexpr std::size_t device_page_bytes = 2 * MiB;

unexpected unknown_stream() {
  return fail(Code::invalid_argument, "no such stream: never created here, or destroyed");
}

void unregister(std::byte* base, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += pin_step_bytes) (void)cudaHostUnregister(base + at);
  (void)cudaGetLastError();
}

}  // namespace

struct CudaCopyEngine::Stream {
  cudaStream_t handle = nullptr;
  bool owned = false;
  int device = 0;
  std::mutex mutex;  // guards all below
  std::vector<cudaEvent_t> events;
  std::uint64_t recorded = 0;
  std::uint64_t passed = 0;
  bool failed = false;

  ~Stream() {
    const CallScope scope(device);
    for (cudaEvent_t event : events) (void)cudaEventDestroy(event);
    if (owned) (void)cudaStreamDestroy(handle);
    (void)cudaGetLastError();
  }

  cudaEvent_t event_of(std::uint64_t ticket) const { return events[ticket % events_max]; }

  // Finds the points that have passed up to `ticket`. REQUIRES: mutex is held.
  PointState advance_to(std::uint64_t ticket) {
    if (ticket > recorded) return PointState::failed;
    while (passed < ticket && !failed) {
      const cudaError_t error = cudaEventQuery(event_of(passed + 1));
      if (error != cudaSuccess) (void)cudaGetLastError();
      if (error == cudaErrorNotReady) return PointState::pending;
      if (error == cudaSuccess) ++passed;
      failed = error != cudaSuccess;
    }
    return ticket <= passed ? PointState::passed : PointState::failed;
  }
};

CudaCopyEngine::~CudaCopyEngine() {
  const CallScope scope(device_);
  streams_.clear();
  for (const auto& [base, bytes] : pinned_) unregister(base, bytes);
}

// ---- Streams and points ----

Result<StreamId> CudaCopyEngine::create_stream() {
  const CallScope scope(device_);
  cudaStream_t handle = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking);
  if (error != cudaSuccess) return cuda_failure(error);
  return add_stream(handle, true);
}

Result<StreamId> CudaCopyEngine::add_stream(cudaStream_t handle, bool owned) {
  const CallScope scope(device_);
  const auto stream = std::make_shared<Stream>();
  stream->handle = handle;
  stream->owned = owned;
  stream->device = device_;
  stream->events.reserve(events_max);
  while (stream->events.size() < events_max) {
    cudaEvent_t event = nullptr;
    // Without a time stamp: half the cost, and a host that waits sleeps.
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    const cudaError_t error = cudaEventCreateWithFlags(&event, flags);
    if (error != cudaSuccess) return cuda_failure(error);
    stream->events.push_back(event);
  }
  const std::lock_guard lock(mutex_);
  streams_.emplace(next_id_, stream);
  return next_id_++;
}

void CudaCopyEngine::destroy_stream(StreamId id) noexcept {
  const StreamPtr stream = find(id);  // ends after the lock, because destruction calls CUDA
  const std::lock_guard lock(mutex_);
  streams_.erase(id);
}

Result<void> CudaCopyEngine::copy(StreamId id, std::span<const Copy> copies) {
  const StreamPtr stream = find(id);
  if (stream == nullptr) return unknown_stream();
  const auto bad = [](const Copy& c) { return c.bytes > 0 && (!c.to || !c.from); };
  if (std::any_of(copies.begin(), copies.end(), bad)) {
    return fail(Code::invalid_argument, "copy: a null pointer");
  }
  const CallScope scope(device_);
  for (const Copy& one : copies) {
    if (one.bytes == 0) continue;
    const cudaError_t error =
        cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDefault, stream->handle);
    if (error != cudaSuccess) return cuda_failure(error);
  }
  return {};
}

Result<StreamPoint> CudaCopyEngine::record(StreamId id) {
  const StreamPtr stream = find(id);
  if (stream == nullptr) return unknown_stream();
  const CallScope scope(device_);
  const std::lock_guard lock(stream->mutex);
  // The event of the next ticket is free once the ticket one round before has passed.
  const std::uint64_t ticket = stream->recorded + 1;
  if (ticket > events_max && stream->advance_to(ticket - events_max) == PointState::pending) {
    return fail(Code::retry_later,
                "too many points are pending on the stream: poll, and try again");
  }
  const cudaError_t error = cudaEventRecord(stream->event_of(ticket), stream->handle);
  if (error != cudaSuccess) return cuda_failure(error);
  stream->recorded = ticket;
  return StreamPoint{id, ticket};
}

Result<void> CudaCopyEngine::wait(StreamId id, StreamPoint point) {
  const StreamPtr stream = find(id);
  if (stream == nullptr) return unknown_stream();
  const StreamPtr other = point.ticket == 0 ? nullptr : find(point.stream);
  const CallScope scope(device_);
  std::unique_lock<std::mutex> lock;
  if (other != nullptr) lock = std::unique_lock(other->mutex);
  if (other != nullptr && point.ticket <= other->passed) return {};
  if (other == nullptr && state_without_stream(point) == PointState::passed) return {};
  // CUDA would take the wait and order nothing.
  if (other == nullptr || point.ticket > other->recorded) {
    return fail(Code::invalid_argument,
                "wait: the point was never recorded; take it from record()");
  }
  const cudaError_t error = cudaStreamWaitEvent(stream->handle, other->event_of(point.ticket), 0);
  if (error != cudaSuccess) return cuda_failure(error);
  return {};
}

PointState CudaCopyEngine::query(StreamPoint point) noexcept {
  const StreamPtr stream = point.ticket == 0 ? nullptr : find(point.stream);
  if (stream == nullptr) return state_without_stream(point);
  const CallScope scope(device_);
  const std::lock_guard lock(stream->mutex);
  return stream->advance_to(point.ticket);
}

PointState CudaCopyEngine::synchronize(StreamPoint point) noexcept {
  const StreamPtr stream = point.ticket == 0 ? nullptr : find(point.stream);
  PointState state = query(point);
  const CallScope scope(device_);
  // Without the lock. Should the event be in use again meanwhile, the point had passed, and we only
  // wait longer.
  while (state == PointState::pending) {
    const cudaError_t error = cudaEventSynchronize(stream->event_of(point.ticket));
    if (error != cudaSuccess) (void)cudaGetLastError();
    state = error == cudaSuccess ? query(point) : PointState::failed;
  }
  return state;
}

CudaCopyEngine::StreamPtr CudaCopyEngine::find(StreamId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second;
}

// Of a point whose stream is not, or no longer, there.
PointState CudaCopyEngine::state_without_stream(StreamPoint point) const {
  const std::lock_guard lock(mutex_);
  const bool known = point.stream != 0 && point.stream < next_id_;
  return point.ticket == 0 || known ? PointState::passed : PointState::failed;
}

// ---- Memory ----

Result<std::byte*> CudaCopyEngine::allocate(std::size_t bytes) {
  if (bytes == 0) return fail(Code::invalid_argument, "allocate: the size is 0");
  const CallScope scope(device_);
  void* base = nullptr;
  const std::size_t pages = (bytes - 1) / device_page_bytes + 1;
  const cudaError_t error = cudaMalloc(&base, pages * device_page_bytes);
  if (error != cudaSuccess) return cuda_failure(error);
  return static_cast<std::byte*>(base);
}

void CudaCopyEngine::deallocate(std::byte* base) noexcept {
  const CallScope scope(device_);
  if (cudaFree(base) != cudaSuccess) (void)cudaGetLastError();
}

Result<void> CudaCopyEngine::pin(std::byte* base, std::size_t bytes) {
  if (base == nullptr || bytes == 0) return fail(Code::invalid_argument, "pin: no memory");
  const CallScope scope(device_);
  for (std::size_t at = 0; at < bytes; at += pin_step_bytes) {
    const std::size_t piece = std::min(pin_step_bytes, bytes - at);
    const cudaError_t error = cudaHostRegister(base + at, piece, cudaHostRegisterPortable);
    if (error == cudaSuccess) continue;
    unregister(base, at);
    return cuda_failure(error);
  }
  const std::lock_guard lock(mutex_);
  pinned_[base] = bytes;
  return {};
}

void CudaCopyEngine::unpin(std::byte* base) noexcept {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pinned_.find(base);
    if (found == pinned_.end()) return;
    bytes = found->second;
    pinned_.erase(found);
  }
  const CallScope scope(device_);
  unregister(base, bytes);
}

}  // namespace terrace::internal

namespace terrace {

Result<std::unique_ptr<CopyEngine>> make_cuda_copy_engine(int device) {
  using namespace internal;
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cuda_failure(error);
  if (device < 0 || device >= count) {
    return fail(Code::invalid_argument, "no CUDA device of this number on this machine");
  }
  const CallScope scope(device);
  error = cudaFree(nullptr);  // makes the context now, so that a failure shows here
  if (error != cudaSuccess) return cuda_failure(error);
  return std::unique_ptr<CopyEngine>(std::make_unique<CudaCopyEngine>(device));
}

Result<StreamId> adopt_stream(CopyEngine& engine, cudaStream_t stream) {
  auto* cuda = dynamic_cast<internal::CudaCopyEngine*>(&engine);
  if (cuda == nullptr) return fail(Code::invalid_argument, "adopt_stream: not a CUDA copy engine");
  return cuda->add_stream(stream, false);
}

}  // namespace terrace
