// The limit: the shortest io_uring loop that moves requests of one size, and does nothing else.
//
// Everything that makes it fast is in it: O_DIRECT, a registered file, registered buffers on huge
// pages, each completion answered by the next request before anything else, one system call for
// submitting and waiting. Nothing that makes a cache one is: no table of requests, no retries, no
// way for another thread to wake it. It moves the same memory as its opponent, in turn: where a
// drive that fills few buffers again and again writes into a processor's cache, or where one
// allocation has luckier pages than another, that is worth a quarter (on the virtual machine this
// was written on), and no merit of a loop.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace terrace::bench {

class BareLoop {
 public:
  // Throws std::runtime_error where anything of that cannot be had: a weak limit is none.
  // `buffers` are pieces of `memory`, which outlives this, of request_bytes each, more than `depth`.
  BareLoop(const std::string& file, std::uint32_t request_bytes, std::uint32_t depth,
           std::span<std::byte> memory, std::vector<std::byte*> buffers);
  ~BareLoop();
  BareLoop(const BareLoop&) = delete;
  BareLoop& operator=(const BareLoop&) = delete;

  // Moves a request at each of `offsets`, in this order, `depth` at a time, to or from its buffers
  // in turn: the one idle for longest first.
  void read(std::span<const std::uint64_t> offsets) { run(false, offsets); }
  void write(std::span<const std::uint64_t> offsets) { run(true, offsets); }

 private:
  void run(bool write, std::span<const std::uint64_t> offsets);
  void prepare(bool write, std::uint64_t offset);

  const std::uint32_t request_bytes_;
  const std::uint32_t depth_;
  int fd_ = -1;
  io_uring ring_{};
  std::deque<std::byte*> free_buffers_;
};

}  // namespace terrace::bench
