// Stops another process at the n-th of its durable steps, from outside: a seccomp filter in that
// process hands the system calls that change what a restart finds to its tracer, and no others. It
// sees RocksDB's threads and io_uring as well as the library's own files.
//
// Must never need a hook in the library.
// Thread rule: the thread that made the process.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::test {

// Kinds of durable steps.
enum class Call : std::uint8_t { write, uring, sync, rename, truncate, allocate, unlink, create };
inline constexpr std::size_t kCalls = 8;
const char* to_string(Call call);

// Before the kernel has begun the call, or after it has ended.
enum class Edge : std::uint8_t { entry, exit };

struct CallPoint {
  Call call = Call::write;
  std::uint32_t nth = 1;  // of its kind, over all threads
  Edge edge = Edge::entry;
};

// The process asks for its tracer, and for the filter. Returns: false where one of them is
// forbidden.
bool submit_to_tracer();

class Tracer {
 public:
  using Counts = std::array<std::uint32_t, kCalls>;

  // `child` is a child of the calling process, and calls submit_to_tracer().
  explicit Tracer(pid_t child) : child_(child) {}
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  ~Tracer() { kill(); }

  // Lets the process run until one of its threads has come to `point`, which stands still from then
  // on; the others go on. Returns: false where the process ended before.
  bool run_to(const CallPoint& point);
  bool run_to_end() { return !run_to({.nth = 0}); }
  // Lets the threads go on that do not stand at a point, for so long.
  void run_others(std::chrono::milliseconds time);
  // SIGKILL, unless it has ended, and waits until nothing is left of it.
  void kill();

  const Counts& counts() const { return counts_; }
  const std::vector<Call>& history() const { return history_; }  // every call, in order
  int status() const { return status_; }  // as from wait(), once it has ended

 private:
  bool has_come_to(const CallPoint& point, pid_t thread, int status);
  void resume(pid_t thread, int status);
  pid_t wait_for_any(int& status, int flags = 0);

  const pid_t child_;
  bool ended_ = false;
  bool traced_ = false;
  int status_ = 0;
  pid_t standing_ = 0;  // the thread that has come to a point
  pid_t leaving_ = 0;   // the thread that is inside the call whose exit is waited for
  Counts counts_{};
  std::vector<Call> history_;
};

}  // namespace terrace::test
