// The file behind a block device: opened, owned, and preallocated to exactly its size.
//
// Must never leave a sparse file (a later write would meet ENOSPC), nor a larger one than it found
// when it fails. Used by open_block_device() and the two devices.
// Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "terrace/io.hpp"

namespace terrace::internal {

// Serves devices with sectors of 512 bytes and of 4 KiB alike.
inline constexpr std::uint32_t block_alignment = 4096;

class BlockFile {
 public:
  // Opens or creates options.path. Content within the size is kept; a larger file is cut, a smaller
  // one extended. Returns: the file; invalid_argument; io_error (nothing is left of a file that did
  // not exist before).
  static Result<BlockFile> open(const BlockDeviceOptions& options);

  BlockFile(BlockFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        size_bytes_(other.size_bytes_),
        direct_(other.direct_),
        virtual_disk_(other.virtual_disk_) {}
  BlockFile& operator=(BlockFile&&) = delete;
  ~BlockFile();

  int fd() const noexcept { return fd_; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  bool direct() const noexcept {
    return direct_;
  }  // O_DIRECT is set, and a probing read has worked
  // It lies on a disk that a hypervisor emulates, as far as the kernel tells.
  bool virtual_disk() const noexcept { return virtual_disk_; }
  Result<void> sync() const;

 private:
  BlockFile(int fd, std::uint64_t size_bytes) noexcept : fd_(fd), size_bytes_(size_bytes) {}
  void try_direct();
  void look_at_disk();

  int fd_;
  std::uint64_t size_bytes_;
  bool direct_ = false;
  bool virtual_disk_ = false;
};

// `devices`: where the kernel describes block devices by number, "/sys/dev/block".
bool is_virtual_disk(dev_t device, const std::string& devices);

// Whether `request` may go to the file: aligned, not empty, and inside it. Returns: 0, or EINVAL.
int check_request(const IoRequest& request, std::uint64_t size_bytes) noexcept;

}  // namespace terrace::internal
