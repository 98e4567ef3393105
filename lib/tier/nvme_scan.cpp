// See nvme_scan.hpp.
#include "tier/nvme_scan.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/assert.hpp"
#include "terrace/units.hpp"

namespace terrace::internal {
namespace {

// Small records are read whole, in long runs: at 32 KiB a sequential read of everything and a read
// of 4 KiB of each cost about the same. Of larger ones only the header is read.
constexpr std::uint64_t kReadWholeMax = 32 * KiB;
constexpr std::uint64_t kRunBytes = 256 * KiB;
constexpr std::uint32_t kDepthMax = 32;
constexpr auto kSilenceMax = std::chrono::seconds(30);

}  // namespace

NvmeScan::NvmeScan(BlockDevice& device, const RecordFormat& format, std::uint32_t slot_count,
                   std::span<std::byte> buffers, std::uint32_t queue_depth_max)
    : device_(device), format_(format), slot_count_(slot_count) {
  const bool whole = format.record_bytes() <= kReadWholeMax;
  slots_per_read_ = whole ? static_cast<std::uint32_t>(kRunBytes / format.record_bytes()) : 1;
  bytes_per_read_ = whole ? static_cast<std::uint32_t>(slots_per_read_ * format.record_bytes())
                          : format.header_bytes();
  const std::size_t bytes =
      std::clamp(queue_depth_max, 1U, kDepthMax) * std::size_t{bytes_per_read_};
  if (buffers.size() < bytes_per_read_) {
    own_buffers_ = HostMemory::allocate(bytes, {}).value();
    buffers = own_buffers_.bytes();
  }
  lanes_.resize(std::min(bytes, buffers.size()) / bytes_per_read_);
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].data = buffers.data() + i * std::size_t{bytes_per_read_};
    idle_lanes_.push_back(i);
  }
}

Result<void> NvmeScan::run(const OnHeader& on_header, const Progress& progress) {
  auto last_answer = std::chrono::steady_clock::now();
  std::uint32_t told = 0;
  while (done_slots_ < slot_count_) {
    submit();
    if (reap(on_header) > 0) {
      last_answer = std::chrono::steady_clock::now();
    } else if (std::chrono::steady_clock::now() - last_answer > kSilenceMax) {
      return fail(Code::io_error, "the data file does not answer reads: check the device",
                  ETIMEDOUT);
    } else {
      wait();
    }
    if (progress && (done_slots_ - told >= 4096 || done_slots_ == slot_count_)) {
      progress(told = done_slots_, slot_count_);
    }
  }
  return {};
}

void NvmeScan::submit() {
  while (!idle_lanes_.empty() && next_slot_ < slot_count_) {
    const std::uint32_t index = idle_lanes_.back();
    Lane& lane = lanes_[index];
    lane.first_slot = next_slot_;
    lane.slots = std::min(slots_per_read_, slot_count_ - next_slot_);
    IoRequest request;
    request.kind = IoRequest::Kind::read;
    request.offset = lane.first_slot * format_.record_bytes();
    request.data = lane.data;
    request.bytes = slots_per_read_ == 1
                        ? bytes_per_read_
                        : static_cast<std::uint32_t>(lane.slots * format_.record_bytes());
    request.user_data = index;
    if (device_.submit(std::span(&request, 1)) == 0) return;
    idle_lanes_.pop_back();
    next_slot_ += lane.slots;
  }
}

std::size_t NvmeScan::reap(const OnHeader& on_header) {
  std::array<IoResult, kDepthMax> results;
  const std::size_t count = device_.reap(results);
  for (const IoResult& result : std::span(results).first(count)) {
    TERRACE_ASSERT(result.user_data < lanes_.size(), result.user_data);
    const Lane& lane = lanes_[result.user_data];
    done_slots_ += lane.slots;
    if (result.os_error != 0) unreadable_slots_ += lane.slots;
    for (std::uint32_t i = 0; i < lane.slots && result.os_error == 0; ++i) {
      const std::byte* header = lane.data + i * format_.record_bytes();
      on_header(lane.first_slot + i, {header, format_.header_bytes()});
    }
    idle_lanes_.push_back(static_cast<std::uint32_t>(result.user_data));
  }
  return count;
}

void NvmeScan::wait() const {
  pollfd readable{device_.wait_fd(), POLLIN, 0};
  if (readable.fd >= 0) {
    (void)::poll(&readable, 1, 10);
  } else {
    std::this_thread::yield();
  }
}

}  // namespace terrace::internal
