#include "serve/serve.hpp"

#include <cstring>
#include <ostream>
#include <stdexcept>

#include "engine/session.hpp"
#include "serve/progress_line.hpp"
#include "terrace/units.hpp"

namespace terrace::serve {
namespace {

// The engine computes on the host. Its "device memory" is host memory, with the ordering rules of a
// device's streams.
std::shared_ptr<CopyEngine> open_device(const std::string& name) {
  if (name == "host") return make_host_copy_engine();
  throw std::runtime_error("--device " + name +
                           ": this build has no engine that computes there; use --device host");
}

engine::SessionOptions session_options(const ServeOptions& options, ProgressLine& progress) {
  const auto show = [&progress](std::string_view step, std::uint64_t done, std::uint64_t total) {
    progress.update(step, done, total);
  };
  engine::SessionOptions session;
  session.model = options.model;
  session.load.progress = show;
  if (!options.digest_cache.empty()) session.load.digest_dir = options.digest_cache;
  session.block_tokens = options.block_tokens;
  session.cache.hbm_bytes = options.hbm_bytes;
  session.cache.dram_bytes = options.dram_bytes;
  session.cache.nvme_paths = options.nvme_paths;
  session.cache.nvme_bytes = options.nvme_paths.empty() ? 0 : options.nvme_bytes;
  session.cache.nvme_write_bytes_per_day = options.nvme_write_bytes_per_day;
  session.cache.nvme_scrub_bytes_per_second = options.nvme_scrub_bytes_per_second;
  session.cache.huge_pages = options.huge_pages;
  session.cache.prefault = options.prefault;
  session.cache.io_uring = options.io_uring;
  session.cache.direct_io = options.direct_io;
  session.cache.driver_thread = true;  // spills go on between requests
  session.cache.device = open_device(options.device);
  session.cache.progress = show;
  session.cache.log = [&progress](LogLevel level, std::string_view line) {
    if (level == LogLevel::debug) return;
    const char* prefix = level == LogLevel::error     ? "error: "
                         : level == LogLevel::warning ? "warning: "
                                                      : "";
    progress.say(std::string(prefix) + std::string(line));
  };
  return session;
}

ServerOptions server_options(const ServeOptions& options, const engine::Session& session) {
  ServerOptions server;
  server.host = options.host;
  server.port = options.port;
  server.admin = options.admin;
  server.model_name = session.model().name;
  return server;
}

// What a person would otherwise learn from the first refused request.
void tell_sizes(const engine::Session& session, ProgressLine& progress) {
  const Stats stats = session.cache().stats();
  std::string tiers;
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    const PlaceStats& tier = stats.places[place];
    if (tier.capacity_blocks == 0) continue;
    const std::uint64_t tokens =
        std::uint64_t{tier.capacity_blocks} * session.cache().layout().block_tokens;
    tiers += std::string(tiers.empty() ? "" : ", ") + to_string(place) + " " +
             format_bytes(tier.capacity_bytes) + " (" + std::to_string(tokens) + " tokens)";
  }
  progress.say("model " + session.model().name + "; " + tiers +
               (stats.recovered_blocks == 0 ? ""
                                            : "; " + std::to_string(stats.recovered_blocks) +
                                                  " blocks recovered from nvme"));
  if (session.context_tokens() == session.model().config().max_positions) return;
  progress.say("warning: hbm holds only " + std::to_string(session.context_tokens()) +
               " of the model's context of " +
               std::to_string(session.model().config().max_positions) +
               " tokens: longer prompts are refused; raise --hbm-bytes");
}

std::string url(const std::string& host, std::uint16_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return "http://" + (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace

Program::Program(ServeOptions options) : options_(std::move(options)) {}
Program::~Program() = default;

int Program::run(std::ostream& out, std::ostream& err, bool err_is_terminal) {
  try {
    return serve(out, err, err_is_terminal);
  } catch (const std::exception& error) {
    err << (err_is_terminal ? "\r\x1b[K" : "") << "terrace-serve: error: " << error.what()
        << std::endl;
    return 1;
  }
}

int Program::serve(std::ostream& out, std::ostream& err, bool err_is_terminal) {
  ProgressLine progress(err, err_is_terminal);
  const auto session = engine::Session::open(session_options(options_, progress));
  tell_sizes(*session, progress);
  Server server(*session, server_options(options_, *session));
  const std::uint16_t port = server.bind();
  {
    const std::lock_guard lock(mutex_);
    serving_ = &server;
  }
  out << "terrace-serve: listening on " << url(options_.host, port) << std::endl;
  const bool served = server.run();
  {
    const std::lock_guard lock(mutex_);
    serving_ = nullptr;
    draining_ = true;
  }
  progress.say("writing the cache");
  const Result<void> closed = session->close();
  if (!closed)
    progress.say(std::string("error: the cache was not closed well: ") + closed.error().message);
  if (!served) progress.say("error: listening failed");
  return served && closed ? 0 : 1;
}

bool Program::stop() {
  const std::lock_guard lock(mutex_);
  if (serving_ != nullptr) serving_->stop();
  return serving_ != nullptr || draining_;
}

}  // namespace terrace::serve
