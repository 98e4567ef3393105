// A block device of plain pread and pwrite: the fallback where io_uring is not to be had, and the
// reference in tests.
//
// submit() only queues. reap() executes one request a call, in the calling thread, and so takes as
// long as that one transfer: the interface's "never blocks" holds up to one request. Must never
// execute in submit(), which the engine's thread may call. Made by open_block_device().
// Thread rule: one thread at a time.
#pragma once

#include <memory>

#include "io/block_file.hpp"
#include "io/io_vector.hpp"

namespace terrace::internal {

class FileDevice final : public BlockDevice {
 public:
  FileDevice(BlockFile file, std::uint32_t queue_depth_max);

  std::uint64_t size_bytes() const noexcept override { return file_.size_bytes(); }
  std::uint32_t alignment() const noexcept override { return block_alignment; }
  BlockDeviceFacts facts() const noexcept override;
  std::size_t submit(std::span<const IoRequest> requests) override;
  std::size_t reap(std::span<IoResult> results) override;
  std::size_t in_flight() const noexcept override { return count_; }
  int wait_fd() const noexcept override { return -1; }
  Result<void> sync() override { return file_.sync(); }

 private:
  BlockFile file_;
  const std::uint32_t depth_;
  struct Queued {
    IoVector rest;
    std::uint64_t user_data = 0;
    int os_error = 0;
  };
  std::unique_ptr<Queued[]> queue_;  // a ring
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace terrace::internal
