// pread and pwrite as a block device; see file_device.hpp.
#include "io/file_device.hpp"

#include <unistd.h>

#include <cerrno>

namespace terrace::internal {
namespace {

constexpr int retries_max = 8;

// The whole request, however many calls it takes. Returns: 0, or errno.
int transfer(int fd, const IoRequest& request) {
  std::uint32_t done = 0;
  int retries = 0;
  while (done < request.bytes) {
    std::byte* data = request.data + done;
    const std::size_t bytes = request.bytes - done;
    const auto offset = static_cast<off_t>(request.offset + done);
    const ssize_t moved = request.kind == IoRequest::Kind::read ? ::pread(fd, data, bytes, offset)
                                                                : ::pwrite(fd, data, bytes, offset);
    if (moved == 0) return EIO;  // the file has become shorter
    if (moved > 0) {
      done += static_cast<std::uint32_t>(moved);
    } else if ((errno != EINTR && errno != EAGAIN) || ++retries > retries_max) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

FileDevice::FileDevice(BlockFile file, std::uint32_t queue_depth_max)
    : file_(std::move(file)),
      depth_(queue_depth_max),
      queue_(std::make_unique<IoRequest[]>(queue_depth_max)) {}

BlockDeviceFacts FileDevice::facts() const noexcept {
  return {.io_uring = false, .direct = file_.direct(), .registered_buffers = false};
}

std::size_t FileDevice::submit(std::span<const IoRequest> requests) {
  std::size_t taken = 0;
  for (; taken < requests.size() && count_ < depth_; ++taken) {
    queue_[(first_ + count_) % depth_] = requests[taken];
    ++count_;
  }
  return taken;
}

std::size_t FileDevice::reap(std::span<IoResult> results) {
  if (results.empty() || count_ == 0) return 0;
  const IoRequest& request = queue_[first_];
  int error = check_request(request, file_.size_bytes());
  if (error == 0) error = transfer(file_.fd(), request);
  results[0] = {request.user_data, error};
  first_ = (first_ + 1) % depth_;
  --count_;
  return 1;
}

}  // namespace terrace::internal
