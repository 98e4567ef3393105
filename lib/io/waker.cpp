#include "io/waker.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

namespace terrace::internal {

Waker::~Waker() {
  if (fd_ >= 0) close(fd_);
}

Result<void> Waker::open() {
  fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd_ < 0)
    return fail(Code::io_error, "no event descriptor: raise the limit of open files", errno);
  return {};
}

void Waker::wake() noexcept {
  const std::uint64_t one = 1;
  // A full counter is awake enough.
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
}

void Waker::wait(int device_fd, std::chrono::nanoseconds timeout) noexcept {
  std::array<pollfd, 2> descriptors{pollfd{fd_, POLLIN, 0}, pollfd{device_fd, POLLIN, 0}};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{seconds.count(), static_cast<long>((timeout - seconds).count())};
  if (ppoll(descriptors.data(), device_fd >= 0 ? 2 : 1, &limit, nullptr) <= 0) return;
  std::uint64_t wakes = 0;
  [[maybe_unused]] const auto drained = read(fd_, &wakes, sizeof wakes);
}

}  // namespace terrace::internal
