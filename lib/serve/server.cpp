#include "serve/server.hpp"

#include <httplib.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "serve/api.hpp"
#include "serve/cache_metrics.hpp"
#include "serve/completion.hpp"
#include "serve/request_metrics.hpp"
#include "serve/turnstile.hpp"

namespace terrace::serve {
namespace {

using Json = nlohmann::ordered_json;
using namespace std::chrono_literals;

constexpr auto kDropDeadline = 60s;   // for spills that come before a drop
constexpr int kKeepAliveSeconds = 2;  // an idle connection delays the exit by this at most

struct Endpoint {
  const char* method;
  const char* path;
};
constexpr Endpoint kEndpoints[] = {{"POST", "/v1/completions"},
                                   {"GET", "/v1/models"},
                                   {"GET", "/health"},
                                   {"GET", "/metrics"},
                                   {"POST", "/admin/cache/drop"}};

void send(httplib::Response& response, int status, const Json& body) {
  response.status = status;
  // Text may hold bytes that are not UTF-8: they are replaced, not a failure.
  response.set_content(body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n",
                       "application/json");
}

void send(httplib::Response& response, const ApiError& error) {
  if (error.status() == 503) response.set_header("Retry-After", "1");
  send(response, error.status(), error.to_json());
}

// Runs `handler` and sends what it returns, or the error that it throws.
void respond(httplib::Response& response, const std::function<Json()>& handler) {
  try {
    send(response, 200, handler());
  } catch (const ApiError& error) {
    send(response, error);
  } catch (const std::exception& error) {
    send(response, ApiError(500, std::string("internal error: ") + error.what()));
  }
}

// A second server on the port must fail: the library's default would share it.
void listen_alone(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

}  // namespace

class Server::Impl {
 public:
  Impl(engine::Session& session, ServerOptions options)
      : session_(session),
        options_(std::move(options)),
        turnstile_(options_.waiting_max),
        completions_(session_, turnstile_, metrics_, options_.model_name) {
    configure();
    add_routes();
  }

  std::uint16_t bind();
  bool run();
  void stop();

 private:
  void configure();
  void add_routes();
  void post(const char* path, Json (Impl::*handler)(std::string_view body));
  Json complete(std::string_view body) { return completions_.answer(body); }
  Json drop(std::string_view body);
  Json models() const;
  std::string metrics_text() const;
  ApiError not_routed(const httplib::Request& request, int status) const;
  bool offered(const Endpoint& endpoint) const;

  engine::Session& session_;
  const ServerOptions options_;
  Turnstile turnstile_;
  RequestMetrics metrics_;
  CompletionService completions_;
  const std::time_t started_at_ = std::time(nullptr);
  httplib::Server http_;
  enum class Phase { idle, starting, ended };
  std::atomic<Phase> phase_{Phase::idle};
  std::atomic<bool> stopping_{false};
};

void Server::Impl::configure() {
  http_.set_socket_options(listen_alone);
  http_.set_tcp_nodelay(true);
  http_.set_keep_alive_timeout(kKeepAliveSeconds);
  http_.set_payload_max_length(options_.body_bytes_max);
  http_.new_task_queue = [threads = options_.connections_max] {
    return new httplib::ThreadPool(threads);
  };
  http_.set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (response.body.empty()) send(response, not_routed(request, response.status));
  });
}

void Server::Impl::add_routes() {
  http_.Get("/health", [this](const httplib::Request&, httplib::Response& response) {
    const bool draining = turnstile_.closed();
    send(response, draining ? 503 : 200, {{"status", draining ? "draining" : "ok"}});
  });
  http_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics_text(), "text/plain; version=0.0.4; charset=utf-8");
  });
  http_.Get("/v1/models", [this](const httplib::Request&, httplib::Response& response) {
    respond(response, [this] { return models(); });
  });
  post("/v1/completions", &Impl::complete);
  if (options_.admin) post("/admin/cache/drop", &Impl::drop);
}

// The body is read as it is: a Content-Type that a form would have (curl's default) changes
// nothing.
void Server::Impl::post(const char* path, Json (Impl::*handler)(std::string_view body)) {
  http_.Post(path, [this, handler](const httplib::Request& request, httplib::Response& response,
                                   const httplib::ContentReader& read) {
    if (request.is_multipart_form_data()) {
      // Read to its end all the same: the next request of the connection comes after it.
      read([](const httplib::MultipartFormData&) { return true; },
           [](const char*, std::size_t) { return true; });
      return send(response, ApiError(415, "the body is a multipart form: send JSON"));
    }
    std::string body;
    bool too_large = false;
    const bool complete = read([&](const char* data, std::size_t bytes) {
      body.append(data, bytes);
      too_large = body.size() > options_.body_bytes_max;
      return !too_large;
    });
    if (!complete) {
      return send(response, not_routed(request, too_large ? 413 : response.status));
    }
    respond(response, [&] { return (this->*handler)(body); });
  });
}

// Waits its turn: a request that runs pins its blocks, and would keep the tiers from being emptied.
Json Server::Impl::drop(std::string_view body) {
  const std::vector<PlaceId> places = parse_drop_request(body);
  const Turnstile::Turn turn = turnstile_.enter();
  if (!turn) throw ApiError(503, "the server is busy or stopping: try again");
  const auto dropped = session_.cache().drop(places, kDropDeadline);
  if (!dropped) {
    throw ApiError(503, std::string("the tiers were not emptied: ") + dropped.error().message +
                            " (" + to_string(dropped.error().code) + "); try again");
  }
  return {{"dropped_copies", *dropped}};
}

Json Server::Impl::models() const {
  Json model = {{"id", options_.model_name},
                {"object", "model"},
                {"created", started_at_},
                {"owned_by", "terrace"},
                {"max_model_len", session_.context_tokens()}};
  return {{"object", "list"}, {"data", Json::array({std::move(model)})}};
}

std::string Server::Impl::metrics_text() const {
  std::vector<prometheus::MetricFamily> families = metrics_.collect();
  const auto gauge = [&](const char* name, const char* help, double value) {
    prometheus::ClientMetric metric;
    metric.gauge.value = value;
    families.push_back({name, help, prometheus::MetricType::Gauge, {metric}});
  };
  gauge("terrace_requests_running", "Requests that compute now",
        static_cast<double>(turnstile_.running()));
  gauge("terrace_requests_waiting", "Requests that wait for their turn",
        static_cast<double>(turnstile_.waiting()));
  for (auto& family : cache_metrics(session_.cache().stats()))
    families.push_back(std::move(family));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

bool Server::Impl::offered(const Endpoint& endpoint) const {
  return options_.admin || std::string_view(endpoint.path).find("/admin/") != 0;
}

// What the HTTP library answers by itself, in this API's shape and with what to do.
ApiError Server::Impl::not_routed(const httplib::Request& request, int status) const {
  if (status == 413) {
    return ApiError(413, "the body is larger than " + std::to_string(options_.body_bytes_max) +
                             " bytes: send a shorter prompt");
  }
  if (status != 404) return ApiError(status, "the request is not valid HTTP, or ended early");
  std::string offers;
  for (const Endpoint& endpoint : kEndpoints) {
    if (!offered(endpoint)) continue;
    if (request.path == endpoint.path) {
      return ApiError(405, request.method + " " + request.path + ": use " + endpoint.method);
    }
    offers += std::string(offers.empty() ? "" : ", ") + endpoint.method + " " + endpoint.path;
  }
  return ApiError(404,
                  "no endpoint " + request.method + " " + request.path + "; there are " + offers,
                  "", "unknown_endpoint");
}

std::uint16_t Server::Impl::bind() {
  errno = 0;
  const int port = options_.port == 0 ? http_.bind_to_any_port(options_.host)
                   : http_.bind_to_port(options_.host, options_.port) ? options_.port
                                                                      : -1;
  if (port > 0) return static_cast<std::uint16_t>(port);
  const std::string why = errno != 0 ? std::strerror(errno) : "no such address";
  throw std::runtime_error("cannot listen on " + options_.host + ":" +
                           std::to_string(options_.port) + ": " + why +
                           "; choose another --port (0: a free one) or --host, or stop who has it");
}

bool Server::Impl::run() {
  phase_ = Phase::starting;
  const bool listened = stopping_ || http_.listen_after_bind();
  phase_ = Phase::ended;
  return listened || stopping_;
}

void Server::Impl::stop() {
  stopping_ = true;
  turnstile_.close();
  // The library forgets a stop() that comes before it listens: wait for that moment, which is near.
  while (phase_ == Phase::starting && !http_.is_running()) std::this_thread::sleep_for(1ms);
  http_.stop();
}

Server::Server(engine::Session& session, ServerOptions options)
    : impl_(std::make_unique<Impl>(session, std::move(options))) {}
Server::~Server() = default;
std::uint16_t Server::bind() {
  return impl_->bind();
}
bool Server::run() {
  return impl_->run();
}
void Server::stop() {
  impl_->stop();
}

}  // namespace terrace::serve
