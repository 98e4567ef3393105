#include "sim/stream_work.hpp"

#include <cstring>

namespace terrace::sim {

std::byte* Buffers::take() {
  if (free_.empty()) return all_.emplace_back(bytes_).data();
  std::byte* buffer = free_.back();
  free_.pop_back();
  return buffer;
}

StreamWork::Progress StreamWork::enqueue(CopyEngine& device, StreamId stream, FetchOp* fetch) {
  const auto progress = [](const Error& error) {
    return error.code == Code::retry_later ? Progress::again : Progress::failed;
  };
  for (; next_ < steps_.size(); ++next_) {
    const Step& step = steps_[next_];
    const auto taken =
        step.is_gate ? fetch->gate(step.layer, stream) : device.copy(stream, {&step.copy, 1});
    if (!taken) return progress(taken.error());
  }
  const auto point = device.record(stream);
  if (!point) return progress(point.error());
  point_ = *point;
  return Progress::enqueued;
}

bool Readback::compare(const Universe& universe) {
  bool right = true;
  for (const Read& read : blocks_) {
    const std::vector<std::byte>& expected = universe.block(read.block).bytes;
    right &= std::memcmp(read.buffer, expected.data(), expected.size()) == 0;
    std::memset(read.buffer, 0xee, expected.size());
    buffers_.give(read.buffer);
  }
  return right;
}

}  // namespace terrace::sim
