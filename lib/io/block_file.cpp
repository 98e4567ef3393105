// Opening and preallocation; see block_file.hpp.
#include "io/block_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

constexpr std::uint64_t fallocate_step_bytes = GiB;
constexpr std::uint64_t zero_step_bytes = MiB;

// Preallocation of one file: knows what to report and what to undo.
class Preallocation {
 public:
  Preallocation(int fd, std::uint64_t old_bytes, const BlockDeviceOptions& options)
      : fd_(fd), old_bytes_(old_bytes), size_bytes_(options.size_bytes), options_(options) {}

  Result<void> run() {
    report(0);
    int error = old_bytes_ > size_bytes_ ? cut(size_bytes_) : 0;
    if (error == 0) error = reserve();
    if (error == EOPNOTSUPP || error == ENOSYS) error = write_zeros();
    if (error == 0 && ::fsync(fd_) != 0) error = errno;
    if (error == 0) return {};
    (void)cut(std::min(old_bytes_, size_bytes_));
    if (error == ENOSPC || error == EDQUOT) {
      return fail(Code::io_error,
                  "the file system has no room for the file: free space, or lower the byte cap",
                  error);
    }
    return fail(Code::io_error, "the file cannot be preallocated", error);
  }

 private:
  // In steps, because a slow file system may take seconds. Existing data is kept, holes in it are
  // filled.
  int reserve() {
    for (std::uint64_t at = 0; at < size_bytes_; at += fallocate_step_bytes) {
      const std::uint64_t bytes = std::min(fallocate_step_bytes, size_bytes_ - at);
      int result = 0;
      do {
        result = ::fallocate(fd_, 0, static_cast<off_t>(at), static_cast<off_t>(bytes));
      } while (result != 0 && errno == EINTR);
      if (result != 0) return errno;
      report(at + bytes);
    }
    return 0;
  }

  // Where the file system cannot fallocate: writes what is missing, at the end first, then in
  // holes.
  int write_zeros() {
    const std::uint64_t kept = std::min(old_bytes_, size_bytes_);
    int error = zero_range(kept, size_bytes_);
    std::uint64_t hole = 0;
    while (error == 0 && next_hole(hole) && hole < kept) {
      const off_t data = ::lseek(fd_, static_cast<off_t>(hole), SEEK_DATA);
      const std::uint64_t end = data < 0 ? kept : std::min(static_cast<std::uint64_t>(data), kept);
      error = zero_range(hole, end);
      hole = end;
    }
    return error;
  }

  bool next_hole(std::uint64_t& at) const {
    const off_t hole = ::lseek(fd_, static_cast<off_t>(at), SEEK_HOLE);
    at = static_cast<std::uint64_t>(hole);
    return hole >= 0;
  }

  int zero_range(std::uint64_t from, std::uint64_t to) {
    const std::string zeros(zero_step_bytes, '\0');
    while (from < to) {
      const std::uint64_t bytes = std::min(zero_step_bytes, to - from);
      const ssize_t written = ::pwrite(fd_, zeros.data(), bytes, static_cast<off_t>(from));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return written < 0 ? errno : EIO;
      from += static_cast<std::uint64_t>(written);
      report(from);
    }
    return 0;
  }

  int cut(std::uint64_t bytes) const {
    return ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }

  void report(std::uint64_t done) const {
    if (options_.progress) options_.progress(done, size_bytes_);
  }

  int fd_;
  std::uint64_t old_bytes_;
  std::uint64_t size_bytes_;
  const BlockDeviceOptions& options_;
};

// A new file survives a power cut only once its directory has been written, too.
Result<void> sync_directory_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail(Code::io_error, "the directory of the file cannot be opened", errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // EINVAL: the file system does not sync directories.
  if (error != 0 && error != EINVAL) {
    return fail(Code::io_error, "the directory of the file cannot be synced", error);
  }
  return {};
}

Result<void> prepare(int fd, bool created, const BlockDeviceOptions& options) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return fail(Code::io_error, "the file cannot be examined", errno);
  if (!S_ISREG(status.st_mode)) {
    return fail(Code::invalid_argument, "the path is not a regular file: name a file");
  }
  const auto old_bytes = static_cast<std::uint64_t>(status.st_size);
  // A file that we made before has no holes; to ask the file system again takes it minutes where
  // the file is in many pieces.
  const std::uint64_t allocated = static_cast<std::uint64_t>(status.st_blocks) * 512;
  if (old_bytes == options.size_bytes && allocated >= old_bytes) return {};
  Result<void> done = Preallocation(fd, old_bytes, options).run();
  return done && created ? sync_directory_of(options.path) : std::move(done);
}

}  // namespace

Result<BlockFile> BlockFile::open(const BlockDeviceOptions& options) {
  constexpr int flags = O_RDWR | O_CLOEXEC;
  constexpr mode_t owner_only = 0600;  // cached blocks are as private as the prompts behind them
  const char* path = options.path.c_str();
  int fd = ::open(path, flags | O_CREAT | O_EXCL, owner_only);
  const bool created = fd >= 0;
  if (!created && errno == EEXIST) fd = ::open(path, flags);
  if (fd < 0) return fail(Code::io_error, "the file cannot be opened or created", errno);
  BlockFile file(fd, options.size_bytes);
  if (const Result<void> prepared = prepare(fd, created, options); !prepared) {
    if (created) ::unlink(path);
    return unexpected(prepared.error());
  }
  if (options.direct) file.try_direct();
  file.look_at_disk();
  return file;
}

BlockFile::~BlockFile() {
  if (fd_ >= 0) ::close(fd_);
}

// O_DIRECT is set after preallocation, which writes through the page cache. Some file systems
// refuse the flag, some only the first transfer, and some want more than 4 KiB of alignment: a read
// tells.
void BlockFile::try_direct() {
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return;
  const std::unique_ptr<void, decltype(&std::free)> block(
      std::aligned_alloc(2 * block_alignment, 2 * block_alignment), &std::free);
  // At an odd multiple of the alignment we promise, so that a stricter file system shows.
  auto* odd = static_cast<std::byte*>(block.get()) + block_alignment;
  const off_t last = static_cast<off_t>(size_bytes_ - block_alignment);
  direct_ = block != nullptr && ::pread(fd_, odd, block_alignment, last) == block_alignment;
  if (!direct_) (void)::fcntl(fd_, F_SETFL, flags);
}

Result<void> BlockFile::sync() const {
  if (::fdatasync(fd_) == 0) return {};
  return fail(Code::io_error, "completed writes could not be made durable (fdatasync)", errno);
}

void BlockFile::look_at_disk() {
  struct stat status {};
  virtual_disk_ = ::fstat(fd_, &status) == 0 && is_virtual_disk(status.st_dev, "/sys/dev/block");
}

// A disk's or a partition's entry is a link to .../virtioN/block/...; a file system without a device of its
// own has none.
bool is_virtual_disk(dev_t device, const std::string& devices) {
  const std::string number = std::to_string(major(device)) + ":" + std::to_string(minor(device));
  std::error_code missing;
  const auto target = std::filesystem::read_symlink(devices + "/" + number, missing);
  return !missing && target.string().find("/virtio") != std::string::npos;
}

int check_request(const IoRequest& request, std::uint64_t size_bytes) noexcept {
  if (request.kind == IoRequest::Kind::sync) return 0;
  const auto usable = [](const IoPiece& piece) {
    return piece.data != nullptr && piece.bytes > 0 && piece.bytes % block_alignment == 0 &&
           reinterpret_cast<std::uintptr_t>(piece.data) % block_alignment == 0;
  };
  if (!usable({request.data, request.bytes}) || !std::ranges::all_of(request.more, usable))
    return EINVAL;
  std::uint64_t bytes = request.bytes;
  for (const IoPiece& piece : request.more) bytes += piece.bytes;
  const bool inside = request.offset <= size_bytes && bytes <= size_bytes - request.offset;
  // The kernel counts what it has transferred in 31 bits.
  const bool countable = bytes <= INT32_MAX && request.more.size() < kIoPiecesMax;
  return inside && countable && request.offset % block_alignment == 0 ? 0 : EINVAL;
}

}  // namespace terrace::internal
