// See nvme_directory.hpp.
#include "tier/nvme_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

constexpr mode_t kDirectoryMode = 0700;  // cached blocks are as private as the prompts behind them
constexpr mode_t kFileMode = 0600;
// A manifest of the most groups that a layout may have (1024) is 92 KiB.
constexpr std::size_t kTextBytesMax = 128 * KiB;

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : EIO;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

// Returns: 0 or errno. The file is complete, or absent.
int write_file(const std::string& path, std::string_view text) {
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kFileMode);
  if (fd < 0) return errno;
  int error = write_all(fd, text);
  if (error == 0 && ::fsync(fd) != 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error != 0) ::unlink(path.c_str());
  return error;
}

int sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno;  // EINVAL: it cannot be synced
  ::close(fd);
  return error;
}

Result<void> make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
    const int error = errno;
    if (error == ENOENT) {
      return fail(Code::io_error,
                  "the parent of the NVMe directory does not exist: create it first", error);
    }
    if (error == ENOTDIR) {
      return fail(Code::invalid_argument, "the parent of the NVMe directory is not a directory",
                  error);
    }
    return fail(Code::io_error, "the NVMe directory cannot be created", error);
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return fail(Code::io_error, "the NVMe directory cannot be examined", errno);
  }
  if (S_ISDIR(status.st_mode)) return {};
  return fail(Code::invalid_argument, "the NVMe directory is a file, not a directory: name another",
              ENOTDIR);
}

// Returns: the descriptor that holds the lock.
Result<int> lock(const NvmePaths& files, const NvmeDirectory::Log& log) {
  // Not inherited by programs that the host process starts: they would hold the lock after its end.
  const int fd = ::open(files.lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode);
  if (fd < 0) {
    return fail(Code::io_error,
                "the NVMe directory cannot be written: check its owner, mode and mount", errno);
  }
  // flock, not fcntl: it also keeps a second cache of this process out, and closing another
  // descriptor of the file does not drop it.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    std::string owner = read_text(fd);
    const bool is_read =
        ::flock(fd, LOCK_SH | LOCK_NB) == 0;  // the owner's name is an old one then
    ::close(fd);
    if (owner.ends_with('\n')) owner.pop_back();
    if (error != EWOULDBLOCK)
      return fail(Code::io_error, "the NVMe directory cannot be locked", error);
    if (is_read)
      return fail(Code::busy, "the NVMe directory is being inspected: wait until that has ended");
    if (log) log(fmt::format("{} is in use: {}", files.directory, owner));
    return fail(Code::busy,
                "the NVMe directory is in use by another cache: stop it, or use another directory");
  }
  // The name is a courtesy: the lock holds without it, so a full disk is no reason to fail here.
  const std::string owner = fmt::format("process {}\n", ::getpid());
  if (::ftruncate(fd, 0) == 0) (void)::pwrite(fd, owner.data(), owner.size(), 0);
  return int{fd};
}

}  // namespace

NvmePaths::NvmePaths(const std::string& path)
    : directory(path),
      lock(directory + "/terrace.lock"),
      manifest(directory + "/terrace.manifest"),
      manifest_draft(directory + "/terrace.manifest.tmp"),
      data(directory + "/blocks.dat"),
      index(directory + "/index") {}

std::string read_text(int fd) {
  std::string text(kTextBytesMax, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t count =
        ::pread(fd, text.data() + size, text.size() - size, static_cast<off_t>(size));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return text;
}

std::string read_text(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return {};
  std::string text = read_text(fd);
  ::close(fd);
  return text;
}

Result<NvmeDirectory> NvmeDirectory::open(const std::string& path, const Log& log) {
  if (path.empty())
    return fail(Code::invalid_argument, "the path of the NVMe directory is empty: name one");
  if (auto made = make_directory(path); !made) return unexpected(made.error());
  NvmePaths files(path);
  if (!exists(files.lock) && (exists(files.data) || exists(files.index))) {
    return fail(
        Code::invalid_argument,
        "the NVMe directory holds blocks.dat or index that no cache made: use an empty directory");
  }
  auto fd = lock(files, log);
  if (!fd) return unexpected(fd.error());
  return NvmeDirectory(std::move(files), *fd);
}

NvmeDirectory::NvmeDirectory(NvmeDirectory&& other) noexcept
    : files_(std::move(other.files_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

// Closing drops the lock, unless a forked child has the descriptor too; an explicit unlock in the
// child would take it from the parent.
NvmeDirectory::~NvmeDirectory() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

bool NvmeDirectory::has_data() const {
  struct stat status {};
  return ::stat(data_path().c_str(), &status) == 0 && status.st_size > 0;
}

std::optional<NvmeManifest> NvmeDirectory::manifest(const RecordFormat& format) const {
  auto manifest = parse_manifest(read_text(files_.manifest));
  if (!manifest || manifest->format.layout_digest() != format.layout_digest() ||
      manifest->format.alignment() != format.alignment()) {
    return std::nullopt;
  }
  return std::move(*manifest);
}

Result<void> NvmeDirectory::write_manifest(const NvmeManifest& manifest) const {
  const std::string& draft = files_.manifest_draft;
  int error = write_file(draft, format_manifest(manifest));
  if (error == 0 && ::rename(draft.c_str(), files_.manifest.c_str()) != 0) error = errno;
  if (error == 0) error = sync_directory(files_.directory);
  if (error == 0) return {};
  ::unlink(draft.c_str());
  return fail(Code::io_error, "the manifest of the NVMe directory cannot be written", error);
}

void NvmeDirectory::remove_leftovers() const {
  ::unlink(files_.manifest_draft.c_str());
}

Result<void> NvmeDirectory::remove_data() const {
  if (::unlink(data_path().c_str()) == 0 || errno == ENOENT) return {};
  return fail(Code::io_error, "blocks.dat of another layout cannot be removed", errno);
}

Result<void> NvmeDirectory::remove_index() const {
  std::error_code error;
  std::filesystem::remove_all(index_path(), error);  // follows no symbolic links
  if (!error) return {};
  return fail(Code::io_error, "the old index in the NVMe directory cannot be removed",
              error.value());
}

}  // namespace terrace::internal
