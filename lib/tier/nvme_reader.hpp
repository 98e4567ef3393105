// A cache directory as it lies on disk, for tools that look into it: manifest, records, index.
//
// Strictly read-only: opens with O_RDONLY, creates nothing, and mends nothing. What it finds is a
// value, damage included. Must never make a cache wait; a cache that is opened meanwhile finds the
// directory in use. Called by: lib/tune.
// Thread rule: const use from any thread, each with a buffer of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "index/slot_index.hpp"
#include "io/host_memory.hpp"
#include "terrace/result.hpp"
#include "tier/nvme_directory.hpp"
#include "tier/nvme_manifest.hpp"

namespace terrace::internal {

class NvmeReader {
 public:
  // Locks the directory (shared) until destruction, where no cache has it open.
  // Returns: the reader, whatever state the directory is in; invalid_argument (not a directory of a
  // cache); io_error.
  static Result<NvmeReader> open(const std::string& path);

  // A cache has it open: what is read may change meanwhile.
  bool in_use() const noexcept { return in_use_; }
  // Who has it open, or had it last, as terrace.lock says.
  const std::string& owner() const noexcept { return owner_; }

  // Returns: the manifest; corrupt; unsupported (another version wrote it); io_error (none).
  const Result<NvmeManifest>& manifest() const noexcept { return manifest_; }

  struct Usage {
    std::uint64_t data_bytes = 0;  // the length of blocks.dat
    std::uint64_t data_bytes_on_disk = 0;
    std::uint64_t index_bytes_on_disk = 0;
  };
  Usage usage() const;

  // One slot, as it was found.
  struct Slot {
    std::uint32_t slot = 0;
    std::int32_t os_error = 0;  // errno; then the rest says nothing
    // other_block: its key or lineage is not that of its tokens. payload_damaged: where payloads
    // are read.
    Verdict verdict = Verdict::not_a_record;
    RecordMeta meta;  // of a record with an intact header
  };
  using Visitor = std::function<void(const Slot& slot)>;

  // ---- Records and index. REQUIRES, from here on: manifest().

  // What one read() takes at most, and the memory it reads into.
  std::uint32_t slots_per_read() const noexcept;
  std::uint64_t buffer_bytes() const noexcept;
  // Returns: the buffer; out_of_memory.
  Result<HostMemory> make_buffer() const;
  // Reads the headers of slots [first, first + count), with `payloads` also the bytes of every
  // layer, and calls `visit` for each in turn; meta.tokens is valid during the call.
  // REQUIRES: count is at most slots_per_read(), buffer is of make_buffer().
  void read(std::uint32_t first, std::uint32_t count, bool payloads, const HostMemory& buffer,
            const Visitor& visit) const;

  bool has_index() const;
  // REQUIRES: !in_use(): RocksDB promises nothing to who reads a database that is being written.
  // Returns: whether a cache that opens it will rely on it; corrupt (what could be read was
  // visited); unsupported (built without RocksDB); io_error.
  Result<bool> read_index(const SlotIndex::Visitor& visit) const;

 private:
  class File {
   public:
    explicit File(int fd = -1) noexcept : fd_(fd) {}
    File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    File& operator=(File&&) = delete;
    ~File();
    int fd() const noexcept { return fd_; }

   private:
    int fd_;
  };

  NvmeReader(NvmePaths files, File lock, File data)
      : files_(std::move(files)), lock_(std::move(lock)), data_(std::move(data)) {}

  const RecordFormat& format() const noexcept { return (*manifest_).format; }
  bool read_run(std::uint32_t first, std::uint32_t count, bool payloads,
                std::span<std::byte> buffer, const Visitor& visit) const;
  void read_alone(std::uint32_t slot, bool payloads, std::span<std::byte> buffer,
                  const Visitor& visit) const;
  Slot judge(std::uint32_t slot, bool payloads, std::span<const std::byte> record) const;

  NvmePaths files_;
  File lock_;
  File data_;  // -1: there is none
  bool in_use_ = false;
  std::string owner_;
  Result<NvmeManifest> manifest_ = fail(Code::io_error, "there is no terrace.manifest");
};

}  // namespace terrace::internal
