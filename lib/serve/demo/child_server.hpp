// A terrace-serve of our own, as a child process: started, waited for, ended well or killed.
//
// Never outlives this object, nor the thread that made it (the kernel kills it then). Called by the
// demo and the process tests.
// Thread rule: running(), kill() and the waits from any thread, the rest from one; the thread that
// made it lives as long as it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace terrace::demo {

class ChildServer {
 public:
  // Starts `binary` with `arguments`; what it says on stderr goes to the end of `log`. Throws
  // std::runtime_error.
  ChildServer(const std::filesystem::path& binary, const std::vector<std::string>& arguments,
              std::filesystem::path log);
  ChildServer(const ChildServer&) = delete;
  ChildServer& operator=(const ChildServer&) = delete;
  ~ChildServer();  // kills it

  // Returns: whether it listens; false where it has not said so within `timeout`, or has ended.
  bool wait_listening(std::chrono::milliseconds timeout);
  // REQUIRES: it listens.
  std::uint16_t port() const noexcept { return port_; }
  bool running();

  // SIGTERM. Returns: its exit code; minus the signal that ended it; or kTimedOut, and it was
  // killed.
  int terminate(std::chrono::milliseconds timeout);
  // SIGKILL: what a crash is to the cache.
  void kill();
  // Returns: as terminate().
  int wait_exit(std::chrono::milliseconds timeout);
  static constexpr int kTimedOut = -1000;

  std::string log_text() const;

 private:
  bool read_output(std::chrono::milliseconds timeout);
  void send(int signal);
  bool reap();

  std::filesystem::path log_;
  pid_t pid_ = -1;
  int output_ = -1;  // read end of its stdout
  std::string said_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;  // of the two below, and of signals to a child that has not been reaped
  bool ended_ = false;
  int exit_code_ = 0;
};

}  // namespace terrace::demo
