// See nvme_reader.hpp.
#include "tier/nvme_reader.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/assert.hpp"
#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

// Not to be held up by a pipe that has one of our names.
constexpr int kReadOnly = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
// Long enough that a few threads keep a device busy, short enough to stay in a cache until hashed.
constexpr std::uint64_t kRunBytes = 2 * MiB;
// Of larger records only the header is read where the payload is not asked for; see nvme_scan.cpp.
constexpr std::uint64_t kReadWholeMax = 32 * KiB;
constexpr std::size_t kProbeBytes = 4096;

std::uint64_t bytes_on_disk(const struct stat& status) {
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

// Returns: how many bytes there were up to the end of the file; negative: errno.
ssize_t read_at(int fd, std::span<std::byte> to, std::uint64_t offset) {
  if (fd < 0) return 0;  // there is no file
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t count =
        ::pread(fd, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -errno;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
    // Past the page cache, only whole blocks can be read: what follows an odd end is the end.
    if (done % 512 != 0) break;
  }
  return static_cast<ssize_t>(done);
}

// Past the page cache, where the file system lets us: what is looked at once would push out what is
// in use, and a copy more costs half of the speed. A read tells.
int open_data(const std::string& path, const HostMemory& probe) {
  const int direct = ::open(path.c_str(), kReadOnly | O_DIRECT);
  if (direct >= 0 && ::pread(direct, probe.bytes().data(), probe.bytes().size(), 0) >= 0) {
    return direct;
  }
  if (direct >= 0) ::close(direct);
  return ::open(path.c_str(), kReadOnly);
}

Result<void> check_directory(const NvmePaths& files) {
  struct stat status {};
  if (::stat(files.directory.c_str(), &status) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) {
      return fail(Code::invalid_argument, "there is no such directory", error);
    }
    return fail(Code::io_error, "the directory cannot be examined", error);
  }
  if (S_ISDIR(status.st_mode)) return {};
  return fail(Code::invalid_argument, "not a directory: name the directory of a cache", ENOTDIR);
}

}  // namespace

NvmeReader::File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Result<NvmeReader> NvmeReader::open(const std::string& path) {
  NvmePaths files(path);
  if (auto checked = check_directory(files); !checked) return unexpected(checked.error());
  File lock(::open(files.lock.c_str(), kReadOnly | O_NOFOLLOW));
  if (lock.fd() < 0 && errno == ENOENT) {
    return fail(Code::invalid_argument, "no cache made this directory: there is no terrace.lock");
  }
  if (lock.fd() < 0) {
    return fail(Code::io_error, "terrace.lock cannot be read: only its owner may", errno);
  }
  const bool locked = ::flock(lock.fd(), LOCK_SH | LOCK_NB) == 0;
  if (!locked && errno != EWOULDBLOCK) {
    return fail(Code::io_error, "terrace.lock cannot be locked", errno);
  }
  const auto probe = HostMemory::allocate(kProbeBytes, {});
  if (!probe) return unexpected(probe.error());
  File data(open_data(files.data, *probe));
  if (data.fd() < 0 && errno != ENOENT) {
    return fail(Code::io_error, "blocks.dat cannot be read", errno);
  }
  NvmeReader reader(std::move(files), std::move(lock), std::move(data));
  reader.in_use_ = !locked;
  reader.owner_ = read_text(reader.lock_.fd());
  if (reader.owner_.ends_with('\n')) reader.owner_.pop_back();
  struct stat status {};
  if (::lstat(reader.files_.manifest.c_str(), &status) == 0) {
    reader.manifest_ = parse_manifest(read_text(reader.files_.manifest));
  }
  return reader;
}

NvmeReader::Usage NvmeReader::usage() const {
  Usage usage;
  struct stat status {};
  if (data_.fd() >= 0 && ::fstat(data_.fd(), &status) == 0) {
    usage.data_bytes = static_cast<std::uint64_t>(status.st_size);
    usage.data_bytes_on_disk = bytes_on_disk(status);
  }
  std::error_code error;  // files come and go where a cache is at work
  std::filesystem::recursive_directory_iterator at(files_.index, error);
  while (!error && at != std::filesystem::recursive_directory_iterator()) {
    if (::lstat(at->path().c_str(), &status) == 0) {
      usage.index_bytes_on_disk += bytes_on_disk(status);
    }
    at.increment(error);
  }
  return usage;
}

std::uint32_t NvmeReader::slots_per_read() const noexcept {
  return static_cast<std::uint32_t>(
      std::max<std::uint64_t>(kRunBytes / format().record_bytes(), 1));
}

std::uint64_t NvmeReader::buffer_bytes() const noexcept {
  return slots_per_read() * format().record_bytes();
}

Result<HostMemory> NvmeReader::make_buffer() const {
  return HostMemory::allocate(buffer_bytes(), {});
}

void NvmeReader::read(std::uint32_t first, std::uint32_t count, bool payloads,
                      const HostMemory& buffer, const Visitor& visit) const {
  TERRACE_ASSERT(count <= slots_per_read() && buffer.bytes().size() == buffer_bytes(), count);
  const bool whole = payloads || format().record_bytes() <= kReadWholeMax;
  if (whole && read_run(first, count, payloads, buffer.bytes(), visit)) return;
  // One bad sector must not speak for its neighbours.
  for (std::uint32_t i = 0; i < count; ++i) read_alone(first + i, payloads, buffer.bytes(), visit);
}

// Returns: false where it could not be read as one; then nothing was visited.
bool NvmeReader::read_run(std::uint32_t first, std::uint32_t count, bool payloads,
                          std::span<std::byte> buffer, const Visitor& visit) const {
  const std::uint64_t stride = format().record_bytes();
  const ssize_t read = read_at(data_.fd(), buffer.first(count * stride), first * stride);
  if (read < 0) return false;
  auto there = static_cast<std::uint64_t>(read);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t bytes = std::min(stride, there);
    visit(judge(first + i, payloads, {buffer.data() + i * stride, bytes}));
    there -= bytes;
  }
  return true;
}

void NvmeReader::read_alone(std::uint32_t slot, bool payloads, std::span<std::byte> buffer,
                            const Visitor& visit) const {
  const std::uint64_t bytes = payloads ? format().record_bytes() : format().header_bytes();
  const ssize_t read = read_at(data_.fd(), buffer.first(bytes), slot * format().record_bytes());
  if (read < 0) {
    visit({.slot = slot, .os_error = static_cast<std::int32_t>(-read), .meta = {}});
  } else {
    visit(judge(slot, payloads, buffer.first(static_cast<std::size_t>(read))));
  }
}

NvmeReader::Slot NvmeReader::judge(std::uint32_t slot, bool payloads,
                                   std::span<const std::byte> record) const {
  Slot found{.slot = slot, .meta = {}};
  const auto header = record.first(std::min<std::size_t>(record.size(), format().header_bytes()));
  found.verdict = format().parse(header, found.meta);
  if (found.verdict != Verdict::good) return found;
  if (chain_next(found.meta.parent, found.meta.tokens) != found.meta.self) {
    found.verdict = Verdict::other_block;
  } else if (payloads) {
    found.verdict = format().verify(record, found.meta);
  }
  return found;
}

bool NvmeReader::has_index() const {
  std::error_code error;
  return std::filesystem::is_directory(files_.index, error);
}

Result<bool> NvmeReader::read_index(const SlotIndex::Visitor& visit) const {
  TERRACE_ASSERT(!in_use_, in_use_);
#if defined(TERRACE_WITH_ROCKSDB)
  return read_rocks_slot_index(files_.index, format().entry_bytes(), visit);
#else
  (void)visit;
  return fail(Code::unsupported, "this build has no RocksDB to read the slot index with");
#endif
}

}  // namespace terrace::internal
