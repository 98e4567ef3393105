// The HTTP server: routes, limits, start and stop. A library; the program around it is serve.hpp.
//
// Installs no signal handlers and prints nothing. One completion computes at a time; /health,
// /metrics and /v1/models answer meanwhile. Called by serve.cpp and tests.
// Thread rule: run() on one thread; stop() from any, more than once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/session.hpp"

namespace terrace::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: a free one
  std::string model_name;  // what requests call the model
  bool admin = false;
  std::size_t body_bytes_max = 8 * 1024 * 1024;  // a prompt of 128k token ids is about 1 MiB
  std::size_t connections_max = 64;              // served at once; further ones wait
  std::size_t waiting_max =
      32;  // completions waiting for their turn; further ones get 503. Below connections_max, so
           // that there is always a connection for /health
};

class Server {
 public:
  // `session` outlives this.
  Server(engine::Session& session, ServerOptions options);
  ~Server();

  // Takes the port. Throws std::runtime_error that names the address. Returns: the port.
  std::uint16_t bind();
  // Blocking: serves until stop(), then until what runs is answered. REQUIRES: bind(). Returns:
  // false where listening failed.
  bool run();
  // No new connections; waiting completions are refused; the running one is answered.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace terrace::serve
