// See nvme_directory.hpp.
#include "tier/nvme_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace terrace::internal {
namespace {

constexpr mode_t kDirectoryMode = 0700;  // cached blocks are as private as the prompts behind them
constexpr mode_t kFileMode = 0600;

bool exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::string lock_path(const std::string& path) {
  return path + "/terrace.lock";
}
std::string manifest_path(const std::string& path) {
  return path + "/terrace.manifest";
}
std::string manifest_draft_path(const std::string& path) {
  return path + "/terrace.manifest.tmp";
}

// Small files only: reads what fits, and "" where there is none.
std::string read_start(int fd) {
  std::array<char, 1024> bytes;
  const ssize_t count = ::pread(fd, bytes.data(), bytes.size(), 0);
  return count > 0 ? std::string(bytes.data(), static_cast<std::size_t>(count)) : std::string();
}

std::string read_start(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return {};
  std::string text = read_start(fd);
  ::close(fd);
  return text;
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

// All that must be equal for the records in the data file to be of use, in one piece of text.
std::string manifest_head(const RecordFormat& format) {
  return fmt::format(
      "terrace-cache 1\nrecord_format {}\nlayout {}\nheader_bytes {}\nrecord_bytes {}\nslot_count ",
      kRecordFormatVersion, to_hex(format.layout_digest()), format.header_bytes(),
      format.record_bytes());
}

Result<void> make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
    const int error = errno;
    if (error == ENOENT) {
      return fail(Code::io_error, "the parent of nvme_path does not exist: create it first", error);
    }
    if (error == ENOTDIR) {
      return fail(Code::invalid_argument, "the parent of nvme_path is not a directory", error);
    }
    return fail(Code::io_error, "nvme_path cannot be created", error);
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return fail(Code::io_error, "nvme_path cannot be examined", errno);
  }
  if (S_ISDIR(status.st_mode)) return {};
  return fail(Code::invalid_argument, "nvme_path is not a directory: name a directory", ENOTDIR);
}

// Returns: the descriptor that holds the lock.
Result<int> lock(const std::string& path, const NvmeDirectory::Log& log) {
  // Not inherited by programs that the host process starts: they would hold the lock after its end.
  const int fd =
      ::open(lock_path(path).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode);
  if (fd < 0) {
    return fail(Code::io_error, "nvme_path cannot be written: check its owner, mode and mount",
                errno);
  }
  // flock, not fcntl: it also keeps a second cache of this process out, and closing another
  // descriptor of the file does not drop it.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    std::string owner = read_start(fd);
    ::close(fd);
    if (owner.ends_with('\n')) owner.pop_back();
    if (error != EWOULDBLOCK) return fail(Code::io_error, "nvme_path cannot be locked", error);
    if (log) log(fmt::format("{} is in use: {}", path, owner));
    return fail(Code::busy,
                "nvme_path is in use by another cache: stop it, or use another directory");
  }
  // The name is a courtesy: the lock holds without it, so a full disk is no reason to fail here.
  const std::string owner = fmt::format("process {}\n", ::getpid());
  if (::ftruncate(fd, 0) == 0) (void)::pwrite(fd, owner.data(), owner.size(), 0);
  return int{fd};
}

}  // namespace

Result<NvmeDirectory> NvmeDirectory::open(const std::string& path, const Log& log) {
  if (path.empty()) return fail(Code::invalid_argument, "nvme_path is empty: name a directory");
  if (auto made = make_directory(path); !made) return unexpected(made.error());
  NvmeDirectory unlocked(path, -1);
  if (!exists(lock_path(path)) && (exists(unlocked.data_path()) || exists(unlocked.index_path()))) {
    return fail(Code::invalid_argument,
                "nvme_path holds blocks.dat or index that no cache made: use an empty directory");
  }
  auto fd = lock(path, log);
  if (!fd) return unexpected(fd.error());
  return NvmeDirectory(path, *fd);
}

NvmeDirectory::NvmeDirectory(NvmeDirectory&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

// Closing drops the lock, unless a forked child has the descriptor too; an explicit unlock in the
// child would take it from the parent.
NvmeDirectory::~NvmeDirectory() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

bool NvmeDirectory::has_data() const {
  struct stat status {};
  return ::stat(data_path().c_str(), &status) == 0 && status.st_size > 0;
}

std::optional<std::uint32_t> NvmeDirectory::manifest_slots(const RecordFormat& format) const {
  const std::string text = read_start(manifest_path(path_));
  const std::string head = manifest_head(format);
  if (!text.starts_with(head) || !text.ends_with('\n')) return std::nullopt;
  std::uint32_t slots = 0;
  const char* end = text.data() + text.size() - 1;
  const auto parsed = std::from_chars(text.data() + head.size(), end, slots);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return slots;
}

Result<void> NvmeDirectory::write_manifest(const RecordFormat& format,
                                           std::uint32_t slot_count) const {
  const std::string draft = manifest_draft_path(path_);
  int error = write_file(draft, manifest_head(format) + fmt::format("{}\n", slot_count));
  if (error == 0 && ::rename(draft.c_str(), manifest_path(path_).c_str()) != 0) error = errno;
  if (error == 0) error = sync_directory(path_);
  if (error == 0) return {};
  ::unlink(draft.c_str());
  return fail(Code::io_error, "the manifest of nvme_path cannot be written", error);
}

void NvmeDirectory::remove_leftovers() const {
  ::unlink(manifest_draft_path(path_).c_str());
}

Result<void> NvmeDirectory::remove_data() const {
  if (::unlink(data_path().c_str()) == 0 || errno == ENOENT) return {};
  return fail(Code::io_error, "blocks.dat of another layout cannot be removed", errno);
}

Result<void> NvmeDirectory::remove_index() const {
  std::error_code error;
  std::filesystem::remove_all(index_path(), error);  // follows no symbolic links
  if (!error) return {};
  return fail(Code::io_error, "the old index in nvme_path cannot be removed", error.value());
}

}  // namespace terrace::internal
