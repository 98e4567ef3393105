// A file mapped read-only, and what the file system says about it.
//
// Must not be truncated by others while it is open: reading beyond its end then ends the process.
// Called by the checkpoint reader.
// Thread rule: const use from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace terrace::engine {

// Which bytes a file held at a moment, as far as the file system tells.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;

  bool operator==(const FileStamp&) const = default;
};

class MappedFile {
 public:
  // Throws LoadError that names the file and the system's reason.
  explicit MappedFile(std::filesystem::path path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::filesystem::path& path() const noexcept { return path_; }
  std::span<const std::byte> bytes() const noexcept { return mapping_; }
  // The stamp of now: where it differs from an earlier one, the file was changed.
  FileStamp stamp() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::span<const std::byte> mapping_;
};

}  // namespace terrace::engine
