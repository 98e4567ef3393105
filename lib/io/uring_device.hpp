// A block device on io_uring, with registered buffers and a registered file where the process may
// have them.
//
// Thread rule: one thread at a time, but not always the same. Therefore the ring has none of the
// flags that tie it to a thread: SINGLE_ISSUER and DEFER_TASKRUN refuse others, and under
// COOP_TASKRUN a completion waits until the submitting thread next enters the kernel, while another
// may be polling. Measured, they gain nothing for transfers of 64 KiB and more.
//
// Must never return from its destructor while the kernel may still write to a request's memory: it
// cancels and waits. Made by open_block_device().
#pragma once

#include <liburing.h>

#include <array>

#include "io/block_file.hpp"
#include "io/request_table.hpp"

namespace terrace::internal {

class UringDevice final : public BlockDevice {
 public:
  static constexpr std::size_t watches_max = 32;

  // Returns: the device; unsupported (the kernel or a filter forbids io_uring, or lacks plain reads
  // and writes: take the file back and use a FileDevice). `file` is moved from on success only.
  static Result<std::unique_ptr<BlockDevice>> create(BlockFile& file,
                                                     const BlockDeviceOptions& options);
  ~UringDevice() override;

  std::uint64_t size_bytes() const noexcept override { return file_.size_bytes(); }
  std::uint32_t alignment() const noexcept override { return block_alignment; }
  BlockDeviceFacts facts() const noexcept override;
  std::size_t submit(std::span<const IoRequest> requests) override;
  std::size_t reap(std::span<IoResult> results) override;
  std::size_t in_flight() const noexcept override { return requests_.in_flight(); }
  // The ring itself. -1 while requests could not be handed to the kernel, which reap() tries again.
  int wait_fd() const noexcept override;
  // In the ring: one system call, where a poll for its descriptor is two, because each completion
  // interrupts it. Only while requests are in flight: the kernel counts this wait as one for I/O.
  bool wait(std::span<const int> fds, std::chrono::nanoseconds timeout) override;
  Result<void> sync() override { return file_.sync(); }

 private:
  UringDevice(BlockFile&& file, const io_uring& ring, const BlockDeviceOptions& options);
  void register_buffers();
  void enqueue(RequestTable::Tag tag);
  void prepare(io_uring_sqe& entry, const IoVector& rest) const noexcept;
  void prepare_piece(io_uring_sqe& entry, int fd, const IoVector& rest) const noexcept;
  int buffer_index(const iovec& memory) const noexcept;
  void hand_over() noexcept;
  void cancel_all() noexcept;
  bool watch(std::size_t place, int fd) noexcept;
  bool end_watch(RequestTable::Tag tag, std::int32_t result) noexcept;

  BlockFile file_;
  io_uring ring_;
  RequestTable requests_;
  std::span<std::byte> buffers_;  // registered; empty: not
  bool registered_file_ = false;
  bool can_wait_ = false;
  std::array<int, watches_max> watched_;  // by place: the descriptor that the ring polls, or -1
  unsigned watches_unsent_ = 0;           // before all requests in the submission queue
};

}  // namespace terrace::internal
