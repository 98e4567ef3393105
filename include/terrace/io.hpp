// The seams (advanced): what the outside world does, as interfaces. Everything that talks to the
// kernel or the driver stands behind one of these, so that a test or a simulator can be the world.
//
// Thread rule: a CopyEngine is used from any thread; a BlockDevice by one thread at a time (the
// pump).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "terrace/result.hpp"

namespace terrace {

class Clock {
 public:
  using Time = std::chrono::nanoseconds;  // since an arbitrary, fixed start
  virtual ~Clock() = default;
  virtual Time now() const noexcept = 0;
};

// ---- Copies between host and device ----

using StreamId = std::uint32_t;

// "Everything enqueued on `stream` before this was recorded": a value, with no lifetime. ticket 0
// has always passed.
struct StreamPoint {
  StreamId stream = 0;
  std::uint64_t ticket = 0;
};

enum class PointState : std::uint8_t { pending, passed, failed };

struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};

// A device and its streams, with CUDA's ordering rules: work is asynchronous to the host, ordered
// within a stream, and unordered between streams unless one waits for a point of the other.
class CopyEngine {
 public:
  virtual ~CopyEngine() = default;
  virtual std::string_view name() const noexcept = 0;

  // Device memory, reserved once. Returns: the base, aligned to at least 4 KiB; out_of_memory.
  virtual Result<std::byte*> allocate(std::size_t bytes) = 0;
  virtual void deallocate(std::byte* base) noexcept = 0;
  // Page-locks host memory for copies. Returns: success; out_of_memory or unsupported (the memory
  // stays usable).
  virtual Result<void> pin(std::byte* base, std::size_t bytes) = 0;
  virtual void unpin(std::byte* base) noexcept = 0;

  // Returns: a new stream; out_of_memory.
  virtual Result<StreamId> create_stream() = 0;
  virtual void destroy_stream(StreamId stream) noexcept = 0;  // after its work is done

  // Enqueues all of `copies`, or none of them. Memory stays valid until a point recorded later has
  // passed. Returns: success; retry_later (the queue is full); io_error (the device failed);
  // invalid_argument (no such stream, a null pointer, overlapping ranges).
  virtual Result<void> copy(StreamId stream, std::span<const Copy> copies) = 0;
  // Returns: the point after all work enqueued so far; retry_later; io_error; invalid_argument.
  virtual Result<StreamPoint> record(StreamId stream) = 0;
  // Work enqueued on `stream` from here on starts after `point` has passed. Returns: success;
  // retry_later; io_error; invalid_argument (the point was never recorded: such a wait would order
  // nothing, silently).
  virtual Result<void> wait(StreamId stream, StreamPoint point) = 0;

  // Points of a destroyed stream have passed; points never recorded have failed.
  virtual PointState query(StreamPoint point) noexcept = 0;
  // Blocks the host until `point` has passed. For engines; the cache never calls it but in close().
  virtual PointState synchronize(StreamPoint point) noexcept = 0;
  // Lets a device without its own processor work, up to about `budget_bytes`. Returns: whether
  // anything was done.
  virtual bool progress(std::size_t budget_bytes) = 0;
};

// Memory as the device, memcpy as the copy. Work runs only inside progress() and synchronize(), in
// an order that may differ between streams as on a GPU. `seed` chooses among the orders that the
// rules allow.
std::unique_ptr<CopyEngine> make_host_copy_engine(std::uint64_t seed = 0);

// ---- Block storage ----

struct IoPiece {
  std::byte* data = nullptr;  // multiples of BlockDevice::alignment(), both
  std::uint32_t bytes = 0;
};
inline constexpr std::size_t kIoPiecesMax = 32;  // of one request

struct IoRequest {
  // sync: writes completed before it was submitted survive a power cut from its result on; it has
  // no offset, data or bytes.
  enum class Kind : std::uint8_t { read, write, sync };
  Kind kind = Kind::read;
  std::uint64_t offset = 0;  // multiple of BlockDevice::alignment(), as are data and bytes
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint64_t user_data = 0;
  // A run: what follows on the device goes to, or comes from, these pieces, in this order. Borrowed
  // during submit(); at most kIoPiecesMax - 1.
  std::span<const IoPiece> more{};
};

struct IoResult {
  std::uint64_t user_data = 0;
  // 0: all bytes were transferred. Otherwise errno, and nothing may be assumed of them; EINVAL: the
  // request is misaligned or outside the device, EIO: also a file that has become shorter.
  std::int32_t os_error = 0;
};

struct BlockDeviceFacts {
  bool io_uring = false;            // false: plain pread and pwrite
  bool direct = false;              // O_DIRECT; false: through the page cache
  bool registered_buffers = false;  // false: the kernel maps buffers at each request
  bool virtual_disk = false;        // a processor moves its bytes, and no controller
};

class BlockDevice {
 public:
  // Waits until no request in flight can touch its memory any more; their results are lost.
  virtual ~BlockDevice() = default;
  virtual std::uint64_t size_bytes() const noexcept = 0;
  virtual std::uint32_t alignment() const noexcept = 0;
  virtual BlockDeviceFacts facts() const noexcept = 0;

  // Starts as many of `requests` as the queue takes, from the front; their memory belongs to the
  // device until the request's one result is reaped. A short transfer is continued inside: a result speaks
  // of the whole request. Returns: how many were taken.
  virtual std::size_t submit(std::span<const IoRequest> requests) = 0;
  // Never blocks; without io_uring it executes one request, and takes as long as that. Returns: how
  // many results were written.
  virtual std::size_t reap(std::span<IoResult> results) = 0;
  virtual std::size_t in_flight() const noexcept = 0;
  // Readable when reap() may have something; -1: just call it. Ask before each wait.
  virtual int wait_fd() const noexcept = 0;
  // Waits until reap() may have something, one of `fds` (each its place; -1: none) is readable, or `timeout`
  // is over; may return early. Returns: false, at once, where the device has no better way to wait
  // than the caller has with wait_fd().
  virtual bool wait(std::span<const int> fds, std::chrono::nanoseconds timeout) {
    (void)fds;
    (void)timeout;
    return false;
  }
  // Blocking. Makes completed writes survive a power cut. Returns: success; io_error.
  virtual Result<void> sync() = 0;
};

struct BlockDeviceOptions {
  std::string path;
  std::uint64_t size_bytes = 0;        // the file is preallocated to exactly this
  std::uint32_t queue_depth_max = 64;  // requests in flight
  std::span<std::byte> buffers;  // where all request data will lie, for registration; may be empty
  bool io_uring = true;          // false: plain file
  bool direct = true;            // false: page cache
  // Told of steps that take long: preallocation. May be empty.
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
};

// The file at options.path, created and preallocated where needed, through io_uring where kernel
// and process allow it, otherwise with plain file I/O. Returns: the device; invalid_argument;
// io_error (os_error ENOSPC: the file system is too small).
Result<std::unique_ptr<BlockDevice>> open_block_device(const BlockDeviceOptions& options);

}  // namespace terrace
