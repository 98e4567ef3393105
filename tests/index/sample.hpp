// Blocks, records and directories for the tests of this folder. The bytes of a payload are a
// function of the block's lineage, so that any record found can be checked without being kept.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "index/record.hpp"

namespace terrace::test {

inline Digest filled(int value) {
  Digest digest;
  digest.fill(static_cast<std::byte>(value));
  return digest;
}

// Records of 8 KiB: a scan reads them whole, and an index would take too much of any cap.
inline Layout small_layout() {
  return Layout::full(3, 2, 8, KvDtype::f16);
}
// Records of 36 KiB: a scan reads headers only, and an index is worth its bytes.
inline Layout middle_layout() {
  return Layout::full(4, 4, 32, KvDtype::f16);
}
// As many bytes, with another meaning.
inline Layout swapped(Layout layout) {
  std::swap(layout.groups[0].kv_heads, layout.groups[0].head_dim);
  return layout;
}

// A chain of blocks, each with its tokens.
struct Chain {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<internal::RecordMeta> blocks;
};

inline Chain make_chain(const Layout& layout, std::uint32_t count, int salt = 0) {
  ModelIdentity identity;
  identity.weights = filled(1);
  identity.tokenizer = filled(2);
  identity.attention = filled(3);
  identity.quantization = "none";
  identity.kv_scaling = "none";
  const std::string tenant = std::to_string(salt);
  Scope scope;
  scope.tenant_salt = tenant;
  const ChainPoint root = *chain_root(identity, layout, scope);
  Chain chain;
  chain.tokens.reserve(count);  // blocks point into it
  ChainPoint at = root;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::vector<TokenId> tokens(layout.block_tokens);
    for (std::uint32_t t = 0; t < layout.block_tokens; ++t) tokens[t] = i * 131 + t * 70'001;
    chain.tokens.push_back(std::move(tokens));
    internal::RecordMeta meta;
    meta.root = root.lineage;
    meta.parent = at;
    meta.tokens = chain.tokens.back();
    meta.self = at = chain_next(at, meta.tokens);
    meta.depth = i;
    meta.incarnation = 7;
    meta.sequence = i + 1;
    chain.blocks.push_back(meta);
  }
  return chain;
}

// Bytes at an address that O_DIRECT accepts.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size)
      : size_(size), bytes_(new (std::align_val_t(4096)) std::byte[size]) {
    std::memset(bytes_.get(), 0xa5, size);  // poison: what was never written must not look empty
  }
  std::span<std::byte> span() const { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t(4096)); }
  };
  std::size_t size_;
  std::unique_ptr<std::byte, Free> bytes_;
};

inline AlignedBytes make_record(const internal::RecordFormat& format,
                                const internal::RecordMeta& meta) {
  AlignedBytes record(format.record_bytes());
  const auto payload = record.span().subspan(format.header_bytes(), format.payload_bytes());
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = meta.self.lineage[i % 32];
  format.seal(record.span(), meta);
  return record;
}

// A directory of this test, removed at the end. A death test's child, which runs the test from its
// start in a process of its own, is told the parent's directory and leaves it alone.
class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& where = std::filesystem::temp_directory_path()) {
    if (const char* parents = std::getenv(kVariable)) {
      path_ = parents;
      return;
    }
    std::string name = (where / "terrace-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = name;
    owner_ = true;
    ::setenv(kVariable, name.c_str(), 1);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    if (!owner_) return;
    ::unsetenv(kVariable);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  static constexpr const char* kVariable = "TERRACE_TEST_DIRECTORY";
  std::string path_;
  bool owner_ = false;
};

// What `du` says: blocks in use, directories included.
inline std::uint64_t disk_usage(const std::string& path) {
  const auto blocks_of = [](const std::string& file) -> std::uint64_t {
    struct stat status {};
    return ::lstat(file.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512
                                               : 0;
  };
  std::uint64_t total = blocks_of(path);
  std::error_code error;  // files come and go while it walks
  std::filesystem::recursive_directory_iterator at(path, error);
  while (!error && at != std::filesystem::recursive_directory_iterator()) {
    total += blocks_of(at->path().string());
    at.increment(error);
  }
  return total;
}

// Every file below `path`: when it was last written, and its bytes.
inline std::map<std::string, std::pair<std::int64_t, std::string>> files_of(
    const std::string& path) {
  std::map<std::string, std::pair<std::int64_t, std::string>> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    std::string bytes(entry.is_regular_file() ? entry.file_size() : 0, '\0');
    std::ifstream(entry.path(), std::ios::binary)
        .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    files[entry.path().string()] = {entry.last_write_time().time_since_epoch().count(),
                                    std::move(bytes)};
  }
  return files;
}

}  // namespace terrace::test
