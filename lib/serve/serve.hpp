// terrace-serve without its main(): loads, serves, drains, writes the cache.
//
// Installs no signal handlers: main() decides what calls stop(). Called by main() and tests.
// Thread rule: run() once, on one thread; stop() from any.
#pragma once

#include <iosfwd>
#include <memory>
#include <mutex>

#include "serve/options.hpp"
#include "serve/server.hpp"

namespace terrace::serve {

class Program {
 public:
  explicit Program(ServeOptions options);
  ~Program();

  // Blocking. One line goes to `out` when the server is ready; progress, warnings and errors go to
  // `err`, which is a terminal or not. Returns: the exit code of the process.
  int run(std::ostream& out, std::ostream& err, bool err_is_terminal);
  // Ends run() in order: what runs is answered, the cache written. Returns: false where nothing is
  // served yet, and the process may simply end.
  bool stop();

 private:
  int serve(std::ostream& out, std::ostream& err, bool err_is_terminal);

  const ServeOptions options_;
  std::mutex mutex_;
  Server* serving_ = nullptr;  // while it can be stopped
  bool draining_ = false;
};

}  // namespace terrace::serve
