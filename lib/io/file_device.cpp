// pread and pwrite as a block device; see file_device.hpp.
#include "io/file_device.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace terrace::internal {
namespace {

constexpr int retries_max = 8;

// The whole request, however many calls it takes. Returns: 0, or errno.
int transfer(int fd, IoVector& rest) {
  if (rest.kind() == IoRequest::Kind::sync) return ::fdatasync(fd) == 0 ? 0 : errno;
  int retries = 0;
  while (rest.left_bytes() > 0) {
    const std::span<const iovec> pieces = rest.pieces();
    const auto count = static_cast<int>(pieces.size());
    const auto offset = static_cast<off_t>(rest.offset());
    const ssize_t moved = rest.kind() == IoRequest::Kind::read
                              ? ::preadv(fd, pieces.data(), count, offset)
                              : ::pwritev(fd, pieces.data(), count, offset);
    if (moved == 0) return EIO;  // the file has become shorter
    if (moved > 0) {
      rest.advance(static_cast<std::uint64_t>(moved));
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
      queue_(std::make_unique<Queued[]>(queue_depth_max)) {}

BlockDeviceFacts FileDevice::facts() const noexcept {
  return {.io_uring = false,
          .direct = file_.direct(),
          .registered_buffers = false,
          .virtual_disk = file_.virtual_disk()};
}

std::size_t FileDevice::submit(std::span<const IoRequest> requests) {
  std::size_t taken = 0;
  for (; taken < requests.size() && count_ < depth_; ++taken) {
    const IoRequest& request = requests[taken];
    Queued& queued = queue_[(first_ + count_) % depth_];
    queued.user_data = request.user_data;
    queued.os_error = check_request(request, file_.size_bytes());
    if (queued.os_error == 0) queued.rest.start(request);
    ++count_;
  }
  return taken;
}

std::size_t FileDevice::reap(std::span<IoResult> results) {
  if (results.empty() || count_ == 0) return 0;
  Queued& request = queue_[first_];
  const int error = request.os_error != 0 ? request.os_error : transfer(file_.fd(), request.rest);
  results[0] = {request.user_data, error};
  first_ = (first_ + 1) % depth_;
  --count_;
  return 1;
}

}  // namespace terrace::internal
