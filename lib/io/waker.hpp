// Where the pump waits: for a device's file descriptor, for somebody's wake(), or for time to pass.
// The only wait there is.
// Thread rule: wake() from any thread; wait() by one thread at a time.
#pragma once

#include <chrono>
#include <span>

#include "terrace/result.hpp"

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
  void wait(std::span<const int> device_fds, std::chrono::nanoseconds timeout) noexcept;

 private:
  int fd_ = -1;
};

}  // namespace terrace::internal
