// The directory of an NVMe tier: who owns it, what it was made for, and which files in it are ours.
//
//   terrace.lock           locked (flock) while a cache has the directory open; names the owner
//   terrace.manifest       text: what the data file was made for; replaced as a whole, never edited
//   blocks.dat             the records
//   index/                 the slot index, where there is one
//
// A directory is ours where terrace.lock exists; in any other, blocks.dat and index are somebody
// else's, and it is refused. Must never remove a file under another name. Called by: NvmeStore.
// Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "terrace/result.hpp"
#include "tier/nvme_manifest.hpp"

namespace terrace::internal {

// The files of a cache directory.
struct NvmePaths {
  explicit NvmePaths(const std::string& path);

  std::string directory;
  std::string lock;
  std::string manifest;
  std::string manifest_draft;
  std::string data;
  std::string index;
};

// What stands in a small file, lock or manifest; "" where there is none, and the start of what is
// too long to be one of ours. Follows no symbolic link.
std::string read_text(int fd);
std::string read_text(const std::string& path);

class NvmeDirectory {
 public:
  using Log = std::function<void(const std::string& line)>;

  // Creates the directory, not its parents, where needed, and locks it until destruction.
  // Returns: the directory; busy (the log names the owner); invalid_argument (not a directory, or
  // one that holds somebody's files under our names); io_error.
  static Result<NvmeDirectory> open(const std::string& path, const Log& log);
  NvmeDirectory(NvmeDirectory&& other) noexcept;
  NvmeDirectory& operator=(NvmeDirectory&&) = delete;
  ~NvmeDirectory();

  const std::string& data_path() const noexcept { return files_.data; }
  const std::string& index_path() const noexcept { return files_.index; }
  bool has_data() const;  // a data file that is not empty

  // Returns: the manifest, where it is one for records of `format`; nothing where it is missing,
  // damaged, or for other records.
  std::optional<NvmeManifest> manifest(const RecordFormat& format) const;
  // Durable when it returns. Returns: success; io_error (the old manifest, if any, is still there).
  Result<void> write_manifest(const NvmeManifest& manifest) const;

  // What a crash may have left; nothing of use.
  void remove_leftovers() const;
  // Returns: success, also where there was none; io_error.
  Result<void> remove_data() const;
  Result<void> remove_index() const;

 private:
  NvmeDirectory(NvmePaths files, int lock_fd) : files_(std::move(files)), lock_fd_(lock_fd) {}

  NvmePaths files_;
  int lock_fd_;
};

}  // namespace terrace::internal
