// What the simulated engine enqueues: its kernels are copies on a stream of its own, so that they
// run when the device pleases, after whatever they have to wait for, and never before.
//
// Thread rule: one thread.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "sim/universe.hpp"
#include "terrace/cache.hpp"

namespace terrace::sim {

// Buffers of one block each; they live as long as the device that may still write to them.
class Buffers {
 public:
  explicit Buffers(std::uint64_t bytes) : bytes_(bytes) {}
  std::byte* take();
  void give(std::byte* buffer) { free_.push_back(buffer); }

 private:
  const std::uint64_t bytes_;
  std::deque<std::vector<std::byte>> all_;
  std::vector<std::byte*> free_;
};

// Gates and copies, and the point behind them. What the device refuses is tried again.
class StreamWork {
 public:
  enum class Progress : std::uint8_t { again, enqueued, failed };

  void gate(std::uint32_t layer) { steps_.push_back({true, layer, {}}); }
  void copy(const Copy& copy) { steps_.push_back({false, 0, copy}); }
  // `fetch` is asked for the gates; null where there are none.
  Progress enqueue(CopyEngine& device, StreamId stream, FetchOp* fetch);
  // REQUIRES: enqueued.
  StreamPoint point() const { return point_; }

 private:
  struct Step {
    bool is_gate;
    std::uint32_t layer;
    Copy copy;
  };
  std::vector<Step> steps_;
  std::size_t next_ = 0;
  StreamPoint point_;
};

// Attention reads every byte of some blocks, layer by layer; what it has read is compared.
class Readback {
 public:
  explicit Readback(Buffers& buffers) : buffers_(buffers) {}
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;
  // Its buffers go back only where they were compared: before that the device may still write there.
  ~Readback() = default;

  StreamWork& work() { return work_; }
  // From here on reads go to a new buffer, for this block.
  void begin(BlockNumber block) { blocks_.push_back({block, buffers_.take()}); }
  std::byte* buffer(std::size_t index) { return blocks_[index].buffer; }
  std::size_t size() const { return blocks_.size(); }
  // REQUIRES: the point has passed; once. Returns: whether every byte is right.
  bool compare(const Universe& universe);

 private:
  struct Read {
    BlockNumber block;
    std::byte* buffer;
  };
  Buffers& buffers_;
  StreamWork work_;
  std::vector<Read> blocks_;
};

}  // namespace terrace::sim
