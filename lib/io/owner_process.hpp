// Which process made something. A child of fork() has neither the threads of its parent nor its
// requests, but shares rings, locks and files with it: what belongs to the parent is left alone.
// Thread rule: const use from any thread.
#pragma once

#include <unistd.h>

namespace terrace::internal {

class OwnerProcess {
 public:
  bool is_this() const noexcept { return ::getpid() == pid_; }

 private:
  pid_t pid_ = ::getpid();
};

}  // namespace terrace::internal
