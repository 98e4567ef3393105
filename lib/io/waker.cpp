#include "io/waker.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
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

// The flag comes after the descriptor: whoever sees it can empty the descriptor, and whoever does not
// yet, wakes once more.
void Waker::wake() noexcept {
  const std::uint64_t one = 1;
  // A full counter is awake enough.
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
  woken_ = true;
}

void Waker::wait(std::span<BlockDevice* const> devices, std::chrono::nanoseconds timeout) noexcept {
  devices = devices.first(std::min(devices.size(), kDevicesMax));
  std::array<int, 1 + kDevicesMax> fds{fd_};
  std::size_t count = 1;
  // The first device comes last: where it waits itself, it looks for the others.
  for (std::size_t i = devices.size(); i-- > 0;) fds[count++] = devices[i]->wait_fd();
  const auto all = std::span<const int>(fds).first(count);
  if (devices.empty() || !devices.front()->wait(all.first(count - 1), timeout))
    poll_all(all, timeout);
  if (!woken_.exchange(false)) return;
  std::uint64_t wakes = 0;
  [[maybe_unused]] const auto drained = read(fd_, &wakes, sizeof wakes);
}

void Waker::poll_all(std::span<const int> fds, std::chrono::nanoseconds timeout) noexcept {
  std::array<pollfd, 1 + kDevicesMax> descriptors;
  nfds_t count = 0;
  for (const int fd : fds) descriptors[count++] = {fd, POLLIN, 0};  // the kernel ignores -1
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{seconds.count(), static_cast<long>((timeout - seconds).count())};
  (void)ppoll(descriptors.data(), count, &limit, nullptr);
}

}  // namespace terrace::internal
