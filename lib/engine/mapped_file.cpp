#include "engine/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/tokenizer/load_error.hpp"

namespace terrace::engine {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw LoadError(fmt::format("{}: cannot be {}: {}", path.string(), what, std::strerror(errno)));
}

FileStamp stamp_of(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail(path, "examined");
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
}

std::span<const std::byte> map(int descriptor, const std::filesystem::path& path) {
  const std::uint64_t bytes = stamp_of(descriptor, path).bytes;
  if (bytes == 0) return {};  // an empty mapping is an error to mmap, an empty file is not
  void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) fail(path, "mapped");
  return {static_cast<const std::byte*>(address), bytes};
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail(path_, "opened");
  try {
    mapping_ = map(descriptor_, path_);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (!mapping_.empty()) ::munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
  ::close(descriptor_);
}

FileStamp MappedFile::stamp() const {
  return stamp_of(descriptor_, path_);
}

}  // namespace terrace::engine
