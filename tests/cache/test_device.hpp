// A block device that a test can spoil, and whose requests it can count; behind it is a real one.
#pragma once

#include <cerrno>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "terrace/options.hpp"

namespace terrace::test {

// What the test sees and sets; shared by all devices that open() gives out.
struct DeviceControl {
  // Returns: errno for a request of the device at `path`, or 0. May be empty.
  std::function<int(const std::string& path, const IoRequest& request)> verdict;
  bool hang = false;          // nothing completes, until it is false again
  bool loses_reads = false;   // those that come now are not answered,
  bool answers_lost = false;  // until now, with an error
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t syncs = 0;
  std::uint64_t bytes_written = 0;

  auto opener() {
    return [this](const BlockDeviceOptions& options) { return open(options); };
  }
  Result<std::unique_ptr<BlockDevice>> open(const BlockDeviceOptions& options);
};

inline std::uint64_t bytes_of(const IoRequest& request) {
  std::uint64_t bytes = request.bytes;
  for (const IoPiece& piece : request.more) bytes += piece.bytes;
  return bytes;
}

class TestDevice final : public BlockDevice {
 public:
  TestDevice(std::unique_ptr<BlockDevice> device, std::string path, DeviceControl& control)
      : device_(std::move(device)), path_(std::move(path)), control_(control) {}

  std::uint64_t size_bytes() const noexcept override { return device_->size_bytes(); }
  std::uint32_t alignment() const noexcept override { return device_->alignment(); }
  BlockDeviceFacts facts() const noexcept override { return device_->facts(); }
  std::size_t in_flight() const noexcept override {
    return device_->in_flight() + failed_.size() + lost_.size();
  }
  int wait_fd() const noexcept override { return -1; }
  Result<void> sync() override { return device_->sync(); }

  std::size_t submit(std::span<const IoRequest> requests) override {
    std::size_t taken = 0;
    for (const IoRequest& request : requests) {
      const bool write = request.kind == IoRequest::Kind::write;
      const bool read = request.kind == IoRequest::Kind::read;
      const int error = control_.verdict ? control_.verdict(path_, request) : 0;
      if (read && control_.loses_reads) {
        lost_.push_back({request.user_data, ETIMEDOUT});
      } else if (error != 0) {
        failed_.push_back({request.user_data, error});
      } else if (device_->submit({&request, 1}) == 0) {
        break;
      }
      const bool sync = request.kind == IoRequest::Kind::sync;
      ++(sync ? control_.syncs : write ? control_.writes : control_.reads);
      if (write) control_.bytes_written += bytes_of(request);
      ++taken;
    }
    return taken;
  }

  std::size_t reap(std::span<IoResult> results) override {
    if (control_.hang) return 0;
    if (control_.answers_lost) failed_.insert(failed_.end(), lost_.begin(), lost_.end());
    if (control_.answers_lost) lost_.clear();
    std::size_t count = 0;
    for (; count < results.size() && !failed_.empty(); ++count) {
      results[count] = failed_.front();
      failed_.pop_front();
    }
    return count + device_->reap(results.subspan(count));
  }

 private:
  std::unique_ptr<BlockDevice> device_;
  const std::string path_;
  DeviceControl& control_;
  std::deque<IoResult> failed_;
  std::vector<IoResult> lost_;
};

inline Result<std::unique_ptr<BlockDevice>> DeviceControl::open(const BlockDeviceOptions& options) {
  auto device = open_block_device(options);
  if (!device) return unexpected(device.error());
  return std::unique_ptr<BlockDevice>(
      std::make_unique<TestDevice>(std::move(*device), options.path, *this));
}

}  // namespace terrace::test
