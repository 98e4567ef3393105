// io_uring as a block device; see uring_device.hpp.
#include "io/uring_device.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

constexpr std::uint64_t registered_piece_bytes =
    GiB;  // the kernel's limit of one registered buffer
constexpr RequestTable::Tag cancel_tag = ~RequestTable::Tag{0};  // a slot no table has
constexpr RequestTable::Tag first_watch_tag = cancel_tag - UringDevice::watches_max;  // likewise
constexpr int hand_over_attempts_max = 4;

// Plain reads and writes came with Linux 5.6, after io_uring itself; the others are as old as it.
bool has_plain_transfers(io_uring& ring) {
  io_uring_probe* probe = ::io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return false;
  const bool has_both = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                        io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  ::io_uring_free_probe(probe);
  return has_both;
}

// A filter may let a ring be made and forbid its use: one no-op there and back.
bool carries_requests(io_uring& ring) {
  ::io_uring_prep_nop(::io_uring_get_sqe(&ring));
  int status = 0;
  do {
    status = ::io_uring_submit_and_wait(&ring, 1);
  } while (status == -EINTR);
  io_uring_cqe* entry = nullptr;
  if (status < 0 || ::io_uring_peek_cqe(&ring, &entry) != 0) return false;
  ::io_uring_cqe_seen(&ring, entry);
  return true;
}

}  // namespace

Result<std::unique_ptr<BlockDevice>> UringDevice::create(BlockFile& file,
                                                         const BlockDeviceOptions& options) {
  io_uring ring{};
  // A request and a watch have one entry at most in the ring, and one more cancels all: neither queue
  // can overflow.
  const unsigned entries = options.queue_depth_max + static_cast<unsigned>(watches_max) + 1;
  const int status = ::io_uring_queue_init(entries, &ring, 0);
  if (status < 0) {
    return fail(Code::unsupported, "io_uring is not available: the kernel or a filter forbids it",
                -status);
  }
  if (!has_plain_transfers(ring) || !carries_requests(ring)) {
    ::io_uring_queue_exit(&ring);
    return fail(
        Code::unsupported,
        "io_uring is not usable: plain reads and writes need Linux 5.6, or a filter forbids it");
  }
  return std::unique_ptr<BlockDevice>(new UringDevice(std::move(file), ring, options));
}

UringDevice::UringDevice(BlockFile&& file, const io_uring& ring, const BlockDeviceOptions& options)
    : file_(std::move(file)),
      ring_(ring),
      requests_(options.queue_depth_max),
      buffers_(options.buffers) {
  register_buffers();
  const int fd = file_.fd();
  registered_file_ = ::io_uring_register_files(&ring_, &fd, 1) == 0;
  can_wait_ = (ring_.features & IORING_FEAT_EXT_ARG) != 0;
  watched_.fill(-1);
}

// Refused beyond RLIMIT_MEMLOCK (ENOMEM) and by filters (EPERM): then the kernel maps the buffer at
// each request.
void UringDevice::register_buffers() {
  std::vector<iovec> pieces;
  for (std::size_t at = 0; at < buffers_.size(); at += registered_piece_bytes) {
    const std::size_t bytes = std::min<std::size_t>(registered_piece_bytes, buffers_.size() - at);
    pieces.push_back({buffers_.data() + at, bytes});
  }
  const auto count = static_cast<unsigned>(pieces.size());
  if (count == 0 || ::io_uring_register_buffers(&ring_, pieces.data(), count) != 0) buffers_ = {};
}

UringDevice::~UringDevice() {
  // What the kernel has not taken yet, it never will.
  const unsigned unsent = ::io_uring_sq_ready(&ring_) - watches_unsent_;
  std::uint32_t in_kernel = requests_.in_flight() - unsent;
  if (in_kernel > 0 && unsent == 0) cancel_all();
  while (in_kernel > 0) {
    io_uring_cqe* entry = nullptr;
    const int status = ::io_uring_wait_cqe(&ring_, &entry);
    if (status == -EINTR || status == -EAGAIN) continue;
    if (status < 0) break;
    if (entry->user_data < first_watch_tag) --in_kernel;
    ::io_uring_cqe_seen(&ring_, entry);
  }
  ::io_uring_queue_exit(&ring_);
}

// Shortens the wait where requests have not reached the device; older kernels (before 5.19) refuse,
// and we just wait.
void UringDevice::cancel_all() noexcept {
  io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
  if (entry == nullptr) return;
  ::io_uring_prep_cancel64(entry, 0, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
  ::io_uring_sqe_set_data64(entry, cancel_tag);
  hand_over();
}

BlockDeviceFacts UringDevice::facts() const noexcept {
  return {.io_uring = true,
          .direct = file_.direct(),
          .registered_buffers = !buffers_.empty(),
          .virtual_disk = file_.virtual_disk()};
}

std::size_t UringDevice::submit(std::span<const IoRequest> requests) {
  std::size_t taken = 0;
  for (; taken < requests.size() && !requests_.full(); ++taken) {
    const IoRequest& request = requests[taken];
    enqueue(requests_.add(request, check_request(request, file_.size_bytes())));
  }
  if (taken > 0) hand_over();
  return taken;
}

// A refused request travels as a no-op, so that results have one way only, and wait_fd() covers
// them.
void UringDevice::enqueue(RequestTable::Tag tag) {
  io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);  // never null: see create()
  if (requests_.refused(tag)) {
    ::io_uring_prep_nop(entry);
  } else {
    prepare(*entry, requests_.rest(tag));
  }
  ::io_uring_sqe_set_data64(entry, tag);
}

// One piece of registered memory saves the kernel the mapping; several pieces save whole requests.
void UringDevice::prepare(io_uring_sqe& entry, const IoVector& rest) const noexcept {
  const int fd = registered_file_ ? 0 : file_.fd();
  const bool read = rest.kind() == IoRequest::Kind::read;
  const std::span<const iovec> pieces = rest.pieces();
  const auto count = static_cast<unsigned>(pieces.size());
  if (rest.kind() == IoRequest::Kind::sync) {
    ::io_uring_prep_fsync(&entry, fd, IORING_FSYNC_DATASYNC);
  } else if (count == 1) {
    prepare_piece(entry, fd, rest);
  } else if (read) {
    ::io_uring_prep_readv(&entry, fd, pieces.data(), count, rest.offset());
  } else {
    ::io_uring_prep_writev(&entry, fd, pieces.data(), count, rest.offset());
  }
  if (registered_file_) entry.flags |= IOSQE_FIXED_FILE;
}

void UringDevice::prepare_piece(io_uring_sqe& entry, int fd, const IoVector& rest) const noexcept {
  const iovec& piece = rest.pieces().front();
  const auto bytes = static_cast<unsigned>(piece.iov_len);
  const int buffer = buffer_index(piece);
  const bool read = rest.kind() == IoRequest::Kind::read;
  if (read && buffer >= 0) {
    ::io_uring_prep_read_fixed(&entry, fd, piece.iov_base, bytes, rest.offset(), buffer);
  } else if (read) {
    ::io_uring_prep_read(&entry, fd, piece.iov_base, bytes, rest.offset());
  } else if (buffer >= 0) {
    ::io_uring_prep_write_fixed(&entry, fd, piece.iov_base, bytes, rest.offset(), buffer);
  } else {
    ::io_uring_prep_write(&entry, fd, piece.iov_base, bytes, rest.offset());
  }
}

// Returns: the registered buffer that holds all of `memory`, or -1.
int UringDevice::buffer_index(const iovec& memory) const noexcept {
  const auto base = reinterpret_cast<std::uintptr_t>(buffers_.data());
  const auto first = reinterpret_cast<std::uintptr_t>(memory.iov_base);
  if (first < base || first - base >= buffers_.size()) return -1;
  if (memory.iov_len > buffers_.size() - (first - base)) return -1;
  const std::uint64_t buffer = (first - base) / registered_piece_bytes;
  const std::uint64_t last = (first - base + memory.iov_len - 1) / registered_piece_bytes;
  return buffer == last ? static_cast<int>(buffer) : -1;
}

// Gives the kernel what is in the submission queue. What it does not take (EAGAIN: short of memory)
// stays there for the next call.
void UringDevice::hand_over() noexcept {
  for (int attempt = 0; attempt < hand_over_attempts_max; ++attempt) {
    const int sent = ::io_uring_submit(&ring_);
    if (sent > 0) watches_unsent_ -= std::min(watches_unsent_, static_cast<unsigned>(sent));
    if (::io_uring_sq_ready(&ring_) == 0) return;
  }
}

std::size_t UringDevice::reap(std::span<IoResult> results) {
  std::size_t count = 0;
  io_uring_cqe* entry = nullptr;
  while (count < results.size() && ::io_uring_peek_cqe(&ring_, &entry) == 0) {
    RequestTable::Tag tag = entry->user_data;
    const std::int32_t transferred = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    if (end_watch(tag, transferred)) continue;
    const RequestTable::Outcome outcome = requests_.complete(tag, transferred, results[count]);
    if (outcome == RequestTable::Outcome::again) enqueue(tag);
    if (outcome == RequestTable::Outcome::done) ++count;
  }
  if (::io_uring_sq_ready(&ring_) > 0) hand_over();
  return count;
}

int UringDevice::wait_fd() const noexcept {
  return ::io_uring_sq_ready(&ring_) > 0 ? -1 : ring_.ring_fd;
}

bool UringDevice::wait(std::span<const int> fds, std::chrono::nanoseconds timeout) {
  if (!can_wait_ || requests_.in_flight() == 0 || fds.size() > watches_max) return false;
  if (::io_uring_sq_ready(&ring_) > 0) return false;  // reap() hands them over first
  for (std::size_t place = 0; place < fds.size(); ++place) {
    if (fds[place] >= 0 && !watch(place, fds[place])) return false;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  __kernel_timespec limit{seconds.count(), (timeout - seconds).count()};
  io_uring_cqe* entry = nullptr;
  (void)::io_uring_submit_and_wait_timeout(&ring_, &entry, 1, &limit, nullptr);
  watches_unsent_ = ::io_uring_sq_ready(&ring_);
  return true;
}

// Returns: false where that place is taken by another descriptor.
bool UringDevice::watch(std::size_t place, int fd) noexcept {
  if (watched_[place] >= 0) return watched_[place] == fd;
  io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);  // never null: see create()
  ::io_uring_prep_poll_add(entry, fd, POLLIN);
  ::io_uring_sqe_set_data64(entry, first_watch_tag + place);
  watched_[place] = fd;
  ++watches_unsent_;
  return true;
}

// Returns: whether the completion was one of a watch. It is armed again by the next wait(), unless the
// kernel cannot do it. ECANCELED: the thread that had armed it has ended.
bool UringDevice::end_watch(RequestTable::Tag tag, std::int32_t result) noexcept {
  if (tag < first_watch_tag || tag == cancel_tag) return false;
  watched_[tag - first_watch_tag] = -1;
  if (result < 0 && result != -ECANCELED) can_wait_ = false;
  return true;
}

}  // namespace terrace::internal
