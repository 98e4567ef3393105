// What else one could do: fio's loop, and one file a block through the page cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nvme/sample.hpp"

namespace terrace::bench {

bool has_fio();

// fio's io_uring engine with O_DIRECT, registered buffers and file, random requests of one size.
// Its buffers are on 4 KiB pages, as everybody's who does not ask for others. Its own figures.
// Throws std::runtime_error where fio fails.
struct FioJob {
  std::string file;
  bool write = false;
  std::uint64_t request_bytes = 0;
  std::uint64_t payload_bytes = 0;  // of each request: what counts
  std::uint32_t depth = 0;
  std::uint64_t requests = 0;
};
Sample run_fio(const FioJob& job);

// A naive cache: a file a block, written and read whole, by one thread, through the page cache.
// A write is over once the file system has everything on the device; before a read, the page cache
// is told to forget the files.
class FilePerBlock {
 public:
  FilePerBlock(std::string directory, std::uint64_t block_bytes, std::uint32_t count);
  ~FilePerBlock();

  Sample write();
  Sample read();  // REQUIRES: written

 private:
  std::string path(std::uint32_t block) const;

  const std::string directory_;
  const std::uint32_t count_;
  std::string bytes_;
};

}  // namespace terrace::bench
