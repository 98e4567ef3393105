// terrace-serve: options, signals, and the library that does the rest. SIGTERM and SIGINT end it in
// order; a second one ends it at once.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>

#include "serve/options.hpp"
#include "serve/serve.hpp"

int main(int argc, char** argv) {
  const auto parsed = terrace::serve::parse_options(argc, argv, std::cout, std::cerr);
  if (!parsed.options) return parsed.exit_code;

  // Blocked in every thread, and taken by one that waits for nothing else: no code ever runs inside
  // a handler.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const auto program = std::make_shared<terrace::serve::Program>(*parsed.options);
  std::thread([program, signals] {
    int signal = 0;
    sigwait(&signals, &signal);
    if (program->stop()) sigwait(&signals, &signal);
    std::_Exit(128 + signal);  // while it loads, or the second one
  }).detach();
  return program->run(std::cout, std::cerr, isatty(STDERR_FILENO) != 0);
}
