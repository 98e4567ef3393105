// The host copy engine; see host_copy_engine.hpp. Reads top-down: progress and synchronize first,
// then enqueueing, then memory.
#include "io/host_copy_engine.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

// Large enough for full bandwidth, small enough that two threads share the work of two streams.
constexpr std::size_t slice_bytes_max = 4 * MiB;
constexpr std::size_t slice_bytes_min = 4 * KiB;
constexpr std::size_t op_cost_bytes =
    64;  // so that a budget also bounds operations that copy nothing

bool is_valid(const Copy& copy) {
  if (copy.bytes == 0) return true;
  if (copy.to == nullptr || copy.from == nullptr) return false;
  const auto to = reinterpret_cast<std::uintptr_t>(copy.to);
  const auto from = reinterpret_cast<std::uintptr_t>(copy.from);
  return to < from ? from - to >= copy.bytes : to - from >= copy.bytes;
}

}  // namespace

HostCopyEngine::HostCopyEngine(std::uint64_t seed) : seeded_(seed != 0), random_state_(seed) {}

HostCopyEngine::~HostCopyEngine() {
  for (const Region& region : pinned_) ::munlock(region.base, region.bytes);
}

// ---- Running ----

bool HostCopyEngine::progress(std::size_t budget_bytes) {
  Lock lock(mutex_);
  bool any = false;
  std::size_t spent = 0;
  do {
    Stream* stream = choose_runnable();
    if (stream == nullptr) break;
    spent += run_head(*stream, budget_bytes - spent, lock);
    any = true;
  } while (spent < budget_bytes);
  return any;
}

PointState HostCopyEngine::synchronize(StreamPoint point) noexcept {
  Lock lock(mutex_);
  while (state(point) == PointState::pending) {
    Stream* stream = first_needed(point);
    if (!stream->busy) {
      run_head(*stream, std::numeric_limits<std::size_t>::max(), lock);
      continue;
    }
    ++synchronizing_;
    advanced_.wait(lock);
    --synchronizing_;
  }
  return state(point);
}

// The stream whose head must run next for `point` to pass. There always is one: a wait names a
// point that had been recorded before it, so that following waits goes back in time and can neither
// circle nor meet an empty stream.
HostCopyEngine::Stream* HostCopyEngine::first_needed(StreamPoint point) noexcept {
  Stream* stream = find(point.stream);
  for (;;) {
    const Op& op = stream->ring[stream->head % queue_ops_max];
    if (op.kind != Op::Kind::wait) return stream;
    if (state({op.stream, op.count}) != PointState::pending) return stream;
    stream = find(op.stream);
  }
}

// Seed 0 takes turns; any other draws, each runnable stream with the same probability.
HostCopyEngine::Stream* HostCopyEngine::choose_runnable() noexcept {
  Stream* chosen = nullptr;
  std::size_t candidates = 0;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const std::size_t index = (turn_ + i) % streams_.size();
    if (!runnable(*streams_[index])) continue;
    if (!seeded_) {
      turn_ = index + 1;
      return streams_[index].get();
    }
    ++candidates;
    if (random() % candidates == 0) chosen = streams_[index].get();
  }
  return chosen;
}

bool HostCopyEngine::runnable(const Stream& stream) noexcept {
  if (stream.busy || stream.head == stream.tail) return false;
  const Op& op = stream.ring[stream.head % queue_ops_max];
  return op.kind != Op::Kind::wait || state({op.stream, op.count}) != PointState::pending;
}

// Runs the operation at the head, or a slice of it, and removes the stream if that was the last of
// a destroyed one. Returns: the cost.
std::size_t HostCopyEngine::run_head(Stream& stream, std::size_t budget_bytes,
                                     Lock& lock) noexcept {
  const Op op = stream.ring[stream.head % queue_ops_max];
  std::size_t cost = op_cost_bytes;
  bool done = true;
  if (op.kind == Op::Kind::copy) {
    cost = std::min<std::size_t>(op.count - stream.copied_bytes, slice_bytes(budget_bytes));
    done = copy_slice(stream, op, cost, lock);
  } else if (op.kind == Op::Kind::record) {
    stream.passed = op.count;
  }
  if (done) ++stream.head;
  if (stream.destroyed && stream.head == stream.tail) {
    std::erase_if(streams_, [&](const auto& entry) { return entry.get() == &stream; });
  }
  if (synchronizing_ > 0) advanced_.notify_all();
  return std::max(cost, op_cost_bytes);
}

// Returns: whether the whole copy is done. The lock is open meanwhile; `busy` keeps other threads
// off the stream, and its entry and the operation's slot in the ring in place.
bool HostCopyEngine::copy_slice(Stream& stream, const Op& op, std::size_t bytes,
                                Lock& lock) noexcept {
  const std::size_t at = stream.copied_bytes;
  stream.busy = true;
  lock.unlock();
  const CopyKernel kernel = op.count >= streaming_copy_bytes_min ? kernel_ : CopyKernel::memcpy;
  copy_bytes(op.to + at, op.from + at, bytes, kernel);
  lock.lock();
  stream.busy = false;
  stream.copied_bytes = at + bytes == op.count ? 0 : at + bytes;
  return stream.copied_bytes == 0;
}

// A seed also cuts copies at varying places: on a GPU, copies of two streams interleave.
std::size_t HostCopyEngine::slice_bytes(std::size_t budget_bytes) noexcept {
  const std::size_t limit = seeded_ ? slice_bytes_min << (random() % 11) : slice_bytes_max;
  return std::clamp(budget_bytes, slice_bytes_min, limit);
}

std::uint64_t HostCopyEngine::random() noexcept {  // SplitMix64
  random_state_ += 0x9e3779b97f4a7c15;
  std::uint64_t z = random_state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// ---- Streams and points ----

Result<StreamId> HostCopyEngine::create_stream() {
  auto stream = std::make_unique<Stream>();
  stream->ring = std::make_unique_for_overwrite<Op[]>(queue_ops_max);
  const Lock lock(mutex_);
  stream->id = next_id_++;
  streams_.push_back(std::move(stream));
  return streams_.back()->id;
}

void HostCopyEngine::destroy_stream(StreamId id) noexcept {
  const Lock lock(mutex_);
  Stream* stream = find(id);
  if (stream == nullptr) return;
  stream->destroyed = true;
  if (stream->head != stream->tail) return;
  std::erase_if(streams_, [&](const auto& entry) { return entry.get() == stream; });
}

Result<void> HostCopyEngine::copy(StreamId id, std::span<const Copy> copies) {
  if (copies.size() > queue_ops_max) {
    return fail(Code::invalid_argument,
                "copy: more copies than a stream holds (65536); split them");
  }
  if (!std::ranges::all_of(copies, is_valid)) {
    return fail(Code::invalid_argument, "copy: a null pointer, or source and destination overlap");
  }
  const Lock lock(mutex_);
  const Result<Stream*> stream = find_for_enqueue(id, copies.size());
  if (!stream) return unexpected(stream.error());
  for (const Copy& copy : copies) {
    if (copy.bytes > 0) push(**stream, {Op::Kind::copy, 0, copy.bytes, copy.to, copy.from});
  }
  return {};
}

Result<StreamPoint> HostCopyEngine::record(StreamId id) {
  const Lock lock(mutex_);
  const Result<Stream*> stream = find_for_enqueue(id, 1);
  if (!stream) return unexpected(stream.error());
  const std::uint64_t ticket = ++(*stream)->recorded;
  push(**stream, {Op::Kind::record, 0, ticket, nullptr, nullptr});
  return StreamPoint{id, ticket};
}

Result<void> HostCopyEngine::wait(StreamId id, StreamPoint point) {
  const Lock lock(mutex_);
  const PointState now = state(point);
  // Accepting it would order nothing (CUDA's behaviour) or wait for ever; both hide the caller's
  // mistake.
  if (now == PointState::failed) {
    return fail(Code::invalid_argument,
                "wait: the point was never recorded; take it from record()");
  }
  const Result<Stream*> stream = find_for_enqueue(id, now == PointState::passed ? 0 : 1);
  if (!stream) return unexpected(stream.error());
  if (now == PointState::pending) {
    push(**stream, {Op::Kind::wait, point.stream, point.ticket, nullptr, nullptr});
  }
  return {};
}

PointState HostCopyEngine::query(StreamPoint point) noexcept {
  const Lock lock(mutex_);
  return state(point);
}

PointState HostCopyEngine::state(StreamPoint point) noexcept {
  if (point.ticket == 0) return PointState::passed;
  if (point.stream == 0 || point.stream >= next_id_) return PointState::failed;
  const Stream* stream = find(point.stream);
  if (stream == nullptr || point.ticket <= stream->passed) return PointState::passed;
  return point.ticket <= stream->recorded ? PointState::pending : PointState::failed;
}

HostCopyEngine::Stream* HostCopyEngine::find(StreamId id) noexcept {
  const auto found =
      std::ranges::lower_bound(streams_, id, {}, [](const auto& s) { return s->id; });
  return found == streams_.end() || (*found)->id != id ? nullptr : found->get();
}

Result<HostCopyEngine::Stream*> HostCopyEngine::find_for_enqueue(StreamId id, std::size_t ops) {
  Stream* stream = find(id);
  if (stream == nullptr || stream->destroyed) {
    return fail(Code::invalid_argument, "no such stream: never created here, or destroyed");
  }
  if (queue_ops_max - (stream->tail - stream->head) < ops) {
    return fail(Code::retry_later,
                "the stream's queue is full: call progress(), and enqueue again");
  }
  return stream;
}

void HostCopyEngine::push(Stream& stream, const Op& op) noexcept {
  // An idle stream starts over, so that it stays in the few pages that it has touched.
  if (stream.head == stream.tail) stream.head = stream.tail = 0;
  stream.ring[stream.tail % queue_ops_max] = op;
  ++stream.tail;
}

// ---- Memory ----

Result<std::byte*> HostCopyEngine::allocate(std::size_t bytes) {
  if (bytes == 0) return fail(Code::invalid_argument, "allocate: the size is 0");
  HostMemory::Options options;
  options.prefault = false;  // a test's device may be large and hardly used
  Result<HostMemory> memory = HostMemory::allocate(bytes, options);
  if (!memory) return unexpected(memory.error());
  std::byte* base = memory->bytes().data();
  const std::lock_guard lock(regions_mutex_);
  allocated_.push_back(*std::move(memory));
  return base;
}

void HostCopyEngine::deallocate(std::byte* base) noexcept {
  const std::lock_guard lock(regions_mutex_);
  std::erase_if(allocated_,
                [&](const HostMemory& memory) { return memory.bytes().data() == base; });
}

Result<void> HostCopyEngine::pin(std::byte* base, std::size_t bytes) {
  const std::lock_guard lock(regions_mutex_);
  if (base == nullptr || bytes == 0 || std::ranges::count(pinned_, base, &Region::base) > 0) {
    return fail(Code::invalid_argument, "pin: no memory, or memory that is pinned already");
  }
  if (::mlock(base, bytes) != 0) {
    return fail(Code::unsupported,
                "pin: the memory cannot be locked; raise the limit of locked memory (ulimit -l)",
                errno);
  }
  pinned_.push_back({base, bytes});
  return {};
}

void HostCopyEngine::unpin(std::byte* base) noexcept {
  const std::lock_guard lock(regions_mutex_);
  const auto found = std::ranges::find(pinned_, base, &Region::base);
  if (found == pinned_.end()) return;
  ::munlock(found->base, found->bytes);
  pinned_.erase(found);
}

}  // namespace terrace::internal

namespace terrace {

std::unique_ptr<CopyEngine> make_host_copy_engine(std::uint64_t seed) {
  return std::make_unique<internal::HostCopyEngine>(seed);
}

}  // namespace terrace
