// Checkpoints in the safetensors format: one file, or shards with an index.
//
// File layout: 8 bytes little-endian header length N, N bytes of JSON {name: {dtype, shape,
// data_offsets}}, data. Files are mapped, never copied whole. Nothing in a header is trusted: every
// length, offset and shape is checked against the file before a byte of data is handed out. A file
// must not be truncated while it is open. Called by load_model().
// Thread rule: const use from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "engine/mapped_file.hpp"
#include "engine/tensor_source.hpp"

namespace terrace::engine {

// One mapped file and its verified header.
class SafetensorsFile {
 public:
  struct Entry {
    TensorInfo info;
    std::span<const std::byte> data;  // into the mapping
  };

  // Throws LoadError: file missing, truncated or malformed; the message names the file and the
  // tensor.
  explicit SafetensorsFile(std::filesystem::path path);

  const MappedFile& file() const noexcept { return file_; }
  std::span<const Entry> entries() const noexcept { return entries_; }

 private:
  MappedFile file_;
  std::vector<Entry> entries_;
};

// All tensors of a model directory.
class Checkpoint final : public TensorSource {
 public:
  // Opens model.safetensors, or else the shards that model.safetensors.index.json lists.
  // Throws LoadError: neither is there; a shard or a tensor that the index lists is missing; see
  // SafetensorsFile.
  explicit Checkpoint(const std::filesystem::path& directory);

  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::span<const std::byte> read(const TensorInfo& tensor, std::uint64_t first,
                                  std::uint64_t count,
                                  std::vector<std::byte>& scratch) const override;
  std::string name() const override { return directory_.string(); }

  std::vector<FileStamp> stamps() const;  // one a file, of now

 private:
  void open_shards(const std::filesystem::path& index);
  void collect();

  std::filesystem::path directory_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::span<const std::byte>> data_;  // by TensorInfo::index
};

}  // namespace terrace::engine
