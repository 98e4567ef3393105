// The records of a directory, read and changed behind the library's back. Nobody has it open.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "crash/life.hpp"
#include "index/sample.hpp"

namespace terrace::test {

class DataFile {
 public:
  DataFile(const Geometry& geometry, const std::string& directory)
      : format_(geometry.layout(), 4096),
        fd_(::open((directory + "/blocks.dat").c_str(), O_RDWR | O_CLOEXEC)) {}
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  const internal::RecordFormat& format() const { return format_; }

  // Returns: false at the end of the file.
  bool read(std::uint32_t slot, std::span<std::byte> record) const {
    return ::pread(fd_, record.data(), record.size(), at(slot)) ==
           static_cast<ssize_t>(record.size());
  }
  void write(std::uint32_t slot, std::span<const std::byte> record) const {
    EXPECT_EQ(::pwrite(fd_, record.data(), record.size(), at(slot)),
              static_cast<ssize_t>(record.size()));
  }

  // Slots that hold a record, each of another block.
  std::vector<std::uint32_t> slots() const {
    std::vector<std::uint32_t> found;
    std::set<Digest> lineages;
    const AlignedBytes header(format_.header_bytes());
    for (std::uint32_t slot = 0; read(slot, header.span()); ++slot) {
      internal::RecordMeta meta;
      if (format_.parse(header.span(), meta) != internal::Verdict::good) continue;
      if (lineages.insert(meta.self.lineage).second) found.push_back(slot);
    }
    return found;
  }

 private:
  off_t at(std::uint32_t slot) const { return static_cast<off_t>(slot * format_.record_bytes()); }

  const internal::RecordFormat format_;
  const int fd_;
};

}  // namespace terrace::test
