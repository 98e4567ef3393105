// Where the pump waits: for a device, for somebody's wake(), or for time to pass. The only wait there
// is.
// Thread rule: wake() from any thread; wait() by one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <span>

#include "terrace/io.hpp"

namespace terrace::internal {

class Waker {
 public:
  Waker() = default;
  ~Waker();
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  // Returns: success; io_error (no file descriptor is to be had).
  Result<void> open();
  void wake() noexcept;
  void wait(std::span<BlockDevice* const> devices, std::chrono::nanoseconds timeout) noexcept;

 private:
  // More devices than these are looked at when the wait is over: it is never long.
  static constexpr std::size_t kDevicesMax = 31;

  static void poll_all(std::span<const int> fds, std::chrono::nanoseconds timeout) noexcept;

  int fd_ = -1;
  std::atomic<bool> woken_ = false;  // the descriptor is readable, or was
};

}  // namespace terrace::internal
