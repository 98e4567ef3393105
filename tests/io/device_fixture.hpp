// What the block device tests share: a temporary folder, aligned memory, blocks that know what they
// are, and a loop that drives a device until it is idle.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "terrace/io.hpp"
#include "terrace/units.hpp"

namespace terrace::test {

inline constexpr std::size_t block_bytes = 64 * KiB;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = testing::TempDir() + "/terrace_io_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  std::string file() const { return path_ / "blocks"; }

 private:
  std::filesystem::path path_;
};

// Page-aligned memory of several blocks.
class Arena {
 public:
  explicit Arena(std::size_t blocks) : bytes_(blocks * block_bytes) {
    void* base =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = static_cast<std::byte*>(base);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { ::munmap(base_, bytes_); }
  std::byte* block(std::size_t index) const { return base_ + index * block_bytes; }
  std::span<std::byte> bytes() const { return {base_, bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* base_;
};

// Every word depends on the block's number, its version and the word's place, so that no misplaced,
// torn or stale byte passes for the right one.
inline std::uint64_t word_of(std::uint64_t number, std::uint64_t version, std::size_t word) {
  std::uint64_t z = number * 0x9e3779b97f4a7c15 + version * 0xbf58476d1ce4e5b9 + word;
  z = (z ^ (z >> 31)) * 0x94d049bb133111eb;
  return z ^ (z >> 29);
}

inline void fill_block(std::byte* data, std::uint64_t number, std::uint64_t version) {
  auto* words = reinterpret_cast<std::uint64_t*>(data);
  for (std::size_t i = 0; i < block_bytes / 8; ++i) words[i] = word_of(number, version, i);
}

inline bool is_block(const std::byte* data, std::uint64_t number, std::uint64_t version) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(data);
  for (std::size_t i = 0; i < block_bytes / 8; ++i) {
    if (words[i] != word_of(number, version, i)) return false;
  }
  return true;
}

inline IoRequest request(IoRequest::Kind kind, std::uint64_t number, std::byte* data,
                         std::uint64_t user_data) {
  return {kind, number * block_bytes, data, block_bytes, user_data};
}

// Reaps until nothing is in flight. Returns: errors by user_data; fails the test on a second result
// of a request.
inline std::map<std::uint64_t, int> reap_all(BlockDevice& device) {
  std::map<std::uint64_t, int> errors;
  std::vector<IoResult> results(16);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (device.in_flight() > 0 && std::chrono::steady_clock::now() < deadline) {
    const std::size_t count = device.reap(results);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(errors.emplace(results[i].user_data, results[i].os_error).second)
          << "a second result of request " << results[i].user_data;
    }
  }
  EXPECT_EQ(device.in_flight(), 0u) << "requests without a result";
  return errors;
}

inline int transfer_one(BlockDevice& device, const IoRequest& one) {
  EXPECT_EQ(device.submit({&one, 1}), 1u);
  return reap_all(device).at(one.user_data);
}

// Whether one block survives the way to the device and back.
inline bool round_trip(BlockDevice& device, const Arena& arena, std::uint64_t number) {
  fill_block(arena.block(0), number, 1);
  const bool written =
      transfer_one(device, request(IoRequest::Kind::write, number, arena.block(0), 1)) == 0;
  const bool read =
      transfer_one(device, request(IoRequest::Kind::read, number, arena.block(1), 2)) == 0;
  return written && read && is_block(arena.block(1), number, 1);
}

// A device whose one request is so large that what comes next comes before its end, unless the thread
// is held up in between: let a test try again.
class SlowDevice {
 public:
  explicit SlowDevice(BlockDeviceOptions options) {
    options.size_bytes = bytes;
    options.buffers = memory_.bytes();
    device_ = open_block_device(options).value();
  }

  BlockDevice& operator*() const { return *device_; }
  // Others end a request inside submit() or reap().
  bool is_slow() const { return device_->facts().io_uring && device_->facts().direct; }
  void start() {
    const IoRequest write{IoRequest::Kind::write, 0, memory_.block(0), bytes, 1};
    ASSERT_EQ(device_->submit({&write, 1}), 1u);
  }
  // Returns: whether the request was still under way.
  bool finish() {
    IoResult result;
    const bool was_under_way = device_->reap({&result, 1}) == 0;
    reap_all(*device_);
    return was_under_way;
  }

 private:
  static constexpr std::uint32_t bytes = 64 * MiB;
  Arena memory_{bytes / block_bytes};
  std::unique_ptr<BlockDevice> device_;
};

inline std::uint64_t allocated_bytes(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512
                                            : 0;
}

inline std::uint64_t file_bytes(const std::string& path) {
  return std::filesystem::file_size(path);
}

}  // namespace terrace::test
