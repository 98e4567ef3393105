#include "nvme/bare_loop.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace terrace::bench {
namespace {

void require(int error, const char* what) {
  if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

BareLoop::BareLoop(const std::string& file, std::uint32_t request_bytes, std::uint32_t depth,
                   std::span<std::byte> memory, std::vector<std::byte*> buffers)
    : request_bytes_(request_bytes), depth_(depth), free_buffers_(buffers.begin(), buffers.end()) {
  fd_ = ::open(file.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  require(fd_ < 0 ? errno : 0, "the limit needs O_DIRECT");
  require(-::io_uring_queue_init(depth, &ring_, 0), "the limit needs io_uring");
  const iovec piece{memory.data(), memory.size()};
  require(-::io_uring_register_buffers(&ring_, &piece, 1), "the limit needs registered buffers");
  require(-::io_uring_register_files(&ring_, &fd_, 1), "the limit needs a registered file");
}

BareLoop::~BareLoop() {
  ::io_uring_queue_exit(&ring_);
  ::close(fd_);
}

void BareLoop::prepare(bool write, std::uint64_t offset) {
  io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
  std::byte* data = free_buffers_.front();
  free_buffers_.pop_front();
  if (write) {
    ::io_uring_prep_write_fixed(entry, 0, data, request_bytes_, offset, 0);
  } else {
    ::io_uring_prep_read_fixed(entry, 0, data, request_bytes_, offset, 0);
  }
  entry->flags |= IOSQE_FIXED_FILE;
  ::io_uring_sqe_set_data(entry, data);
}

void BareLoop::run(bool write, std::span<const std::uint64_t> offsets) {
  std::size_t next = 0;
  while (next < std::min<std::size_t>(depth_, offsets.size())) prepare(write, offsets[next++]);
  for (std::size_t done = 0; done < offsets.size();) {
    const int status = ::io_uring_submit_and_wait(&ring_, 1);
    if (status < 0 && status != -EINTR) require(-status, "the limit cannot submit");
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring_, &entry) == 0) {
      free_buffers_.push_back(static_cast<std::byte*>(::io_uring_cqe_get_data(entry)));
      const bool whole = entry->res == static_cast<std::int32_t>(request_bytes_);
      require(whole ? 0 : (entry->res < 0 ? -entry->res : EIO), "a request of the limit failed");
      ::io_uring_cqe_seen(&ring_, entry);
      ++done;
      if (next < offsets.size()) prepare(write, offsets[next++]);
    }
  }
}

}  // namespace terrace::bench
