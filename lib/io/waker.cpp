#include "io/waker.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

namespace terrace::internal {
namespace {

// More devices than these are looked at when the wait is over: it is never long.
constexpr std::size_t kDevicesMax = 32;

}  // namespace

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

void Waker::wait(std::span<const int> device_fds, std::chrono::nanoseconds timeout) noexcept {
  std::array<pollfd, 1 + kDevicesMax> descriptors{pollfd{fd_, POLLIN, 0}};
  nfds_t count = 1;
  for (const int fd : device_fds.first(std::min(device_fds.size(), kDevicesMax)))
    descriptors[count++] = {fd, POLLIN, 0};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{seconds.count(), static_cast<long>((timeout - seconds).count())};
  if (ppoll(descriptors.data(), count, &limit, nullptr) <= 0) return;
  if (descriptors[0].revents == 0) return;
  std::uint64_t wakes = 0;
  [[maybe_unused]] const auto drained = read(fd_, &wakes, sizeof wakes);
}

}  // namespace terrace::internal
