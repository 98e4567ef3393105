// The server in this process, on a free port, spoken to as a client would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <future>
#include <map>
#include <regex>
#include <sstream>
#include <thread>

#include "serve/fixture.hpp"
#include "serve/server.hpp"

namespace terrace::serve {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using namespace std::chrono_literals;

struct Answer {
  int status = 0;
  Json body;
  std::string text;
  httplib::Headers headers;

  std::string error() const { return body.at("error").at("message").get<std::string>(); }
};

Answer as_answer(const httplib::Result& result) {
  if (!result) return {0, {}, httplib::to_string(result.error()), {}};
  return {result->status, Json::parse(result->body, nullptr, false), result->body, result->headers};
}

// A session of builtin:tiny behind a running server.
class Running {
 public:
  explicit Running(engine::SessionOptions session, ServerOptions server = {})
      : session_(engine::Session::open(std::move(session))) {
    server.model_name = "tiny";
    server_ = std::make_unique<Server>(*session_, server);
    port_ = server_->bind();
    thread_ = std::thread([this] { served_ = server_->run(); });
  }
  ~Running() { stop(); }

  void stop() {
    server_->stop();
    if (thread_.joinable()) thread_.join();
    EXPECT_TRUE(served_);
  }
  void ask_to_stop() { server_->stop(); }

  Answer get(const std::string& path) const { return as_answer(client().Get(path.c_str())); }
  Answer post(const std::string& path, const std::string& body) const {
    return as_answer(client().Post(path.c_str(), body, "application/json"));
  }
  Answer complete(const Json& body) const { return post("/v1/completions", body.dump()); }
  std::map<std::string, double> metrics() const;
  httplib::Client client() const {
    httplib::Client client("127.0.0.1", port_);
    client.set_read_timeout(1h);  // what takes too long, ctest ends
    return client;
  }
  std::uint16_t port() const { return port_; }
  engine::Session& session() const { return *session_; }

 private:
  std::unique_ptr<engine::Session> session_;
  std::unique_ptr<Server> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
  bool served_ = false;
};

// Every line of the exposition format is a comment or `name{labels} value`.
std::map<std::string, double> Running::metrics() const {
  const std::regex sample(R"(^([a-z0-9_]+(?:\{[^}]*\})?) ([-+0-9.eEInfNa]+)$)");
  std::map<std::string, double> values;
  std::istringstream text(get("/metrics").text);
  for (std::string line; std::getline(text, line);) {
    std::smatch match;
    if (line.empty() || line[0] == '#') continue;
    EXPECT_TRUE(std::regex_match(line, match, sample)) << line;
    if (!match.empty()) values[match[1]] = std::stod(match[2]);
  }
  return values;
}

engine::SessionOptions tiny() {
  return test::small_session("builtin:tiny");
}

// One server for all tests that leave nothing behind.
class Http : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ServerOptions options;
    options.body_bytes_max = 1 * MiB;
    running_ = new Running(tiny(), options);
  }
  static void TearDownTestSuite() { delete std::exchange(running_, nullptr); }
  static Running& server() { return *running_; }

 private:
  static inline Running* running_ = nullptr;
};

TEST_F(Http, HealthAndModels) {
  EXPECT_EQ(server().get("/health").status, 200);
  EXPECT_EQ(server().get("/health").body.at("status"), "ok");
  const Json models = server().get("/v1/models").body;
  EXPECT_EQ(models.at("data").at(0).at("id"), "tiny");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len"), 16384);
}

TEST_F(Http, ACompletionHasTheShapeOfOpenAi) {
  const Answer answer =
      server().complete({{"model", "tiny"}, {"prompt", "hello"}, {"max_tokens", 5}});
  ASSERT_EQ(answer.status, 200) << answer.text;
  EXPECT_EQ(answer.body.at("object"), "text_completion");
  EXPECT_EQ(answer.body.at("model"), "tiny");
  const Json& choice = answer.body.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_TRUE(choice.at("text").is_string());
  EXPECT_FALSE(choice.contains("token_ids"));
  const Json& usage = answer.body.at("usage");
  EXPECT_EQ(usage.at("prompt_tokens"), 6);  // and the token that begins a text
  EXPECT_EQ(usage.at("completion_tokens"), 5);
  EXPECT_EQ(usage.at("total_tokens"), 11);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens"), 0);
}

TEST_F(Http, TextAndItsTokenIdsAreTheSamePrompt) {
  const auto ids_of = [&](const Json& prompt) {
    return server()
        .complete({{"prompt", prompt}, {"max_tokens", 8}, {"return_token_ids", true}})
        .body.at("choices")
        .at(0)
        .at("token_ids");
  };
  const Json expected = ids_of("abc");
  EXPECT_EQ(expected.size(), 8u);
  EXPECT_EQ(ids_of(Json::array({"abc"})), expected);
  EXPECT_EQ(ids_of({256, 'a', 'b', 'c'}), expected);
}

TEST_F(Http, ASecondRequestFindsItsPromptInHbm) {
  const std::string prompt(100, 'x');
  const Answer cold = server().complete({{"prompt", prompt}, {"return_token_ids", true}});
  const Answer warm = server().complete({{"prompt", prompt}, {"return_token_ids", true}});
  EXPECT_EQ(warm.body.at("choices").at(0).at("token_ids"),
            cold.body.at("choices").at(0).at("token_ids"));
  EXPECT_EQ(cold.body.at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
  EXPECT_EQ(warm.body.at("usage").at("prompt_tokens_details").at("cached_tokens"), 96);
  const Json& terrace = warm.body.at("terrace");
  EXPECT_EQ(terrace.at("cached_tokens_by_tier"), (Json{{"hbm", 96}, {"dram", 0}, {"nvme", 0}}));
  EXPECT_GT(terrace.at("ttft_ms").get<double>(), 0);
  EXPECT_GE(terrace.at("total_ms"), terrace.at("ttft_ms"));
}

TEST_F(Http, ASaltShareNothingWithAnother) {
  const auto cached = [&](const Json& salt) {
    Json body = {{"prompt", std::string(64, 's')}, {"max_tokens", 1}};
    if (!salt.is_null()) body["cache_salt"] = salt;
    return server()
        .complete(body)
        .body.at("usage")
        .at("prompt_tokens_details")
        .at("cached_tokens")
        .get<int>();
  };
  EXPECT_EQ(cached(nullptr), 0);
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_EQ(cached("a"), 64);
  EXPECT_EQ(cached(nullptr), 64);
}

TEST_F(Http, AStopStringEndsTheAnswer) {
  const Answer whole = server().complete({{"prompt", "stop here"}, {"max_tokens", 30}});
  const std::string text = whole.body.at("choices").at(0).at("text");
  ASSERT_GT(text.size(), 4u);
  // Cut at a character boundary: the middle of the text, moved on to the start of a code point.
  std::size_t from = text.size() / 2;
  while (from < text.size() && (text[from] & 0xC0) == 0x80) ++from;
  const std::string stop = text.substr(from);
  const Answer cut =
      server().complete({{"prompt", "stop here"}, {"max_tokens", 30}, {"stop", stop}});
  EXPECT_EQ(cut.body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(cut.body.at("choices").at(0).at("text"), text.substr(0, text.find(stop)));
}

TEST_F(Http, BadRequestsAreNamed) {
  const auto error = [&](const Json& body, int status) {
    const Answer answer = server().complete(body);
    EXPECT_EQ(answer.status, status) << answer.text;
    return answer.error();
  };
  EXPECT_THAT(error({{"prompt", ""}}, 400), HasSubstr("'prompt' is empty"));
  EXPECT_THAT(error({{"max_tokens", 3}}, 400), HasSubstr("'prompt' is missing"));
  EXPECT_THAT(error({{"prompt", "p"}, {"max_tokens", -3}}, 400), HasSubstr("not -3"));
  EXPECT_THAT(error({{"prompt", "p"}, {"stream", true}}, 400), HasSubstr("not supported yet"));
  EXPECT_THAT(error({{"prompt", "p"}, {"temperature", 1}}, 400), HasSubstr("must be 0"));
  EXPECT_THAT(error({{"prompt", {1, 272}}}, 400),
              AllOf(HasSubstr("272"), HasSubstr("index 1"), HasSubstr("0 to 271")));
  EXPECT_THAT(error({{"prompt", std::string(16384, 'x')}}, 400),
              AllOf(HasSubstr("16385"), HasSubstr("16384")));
  EXPECT_THAT(error({{"prompt", "p"}, {"model", "gpt"}}, 404),
              AllOf(HasSubstr("gpt"), HasSubstr("tiny")));
  EXPECT_EQ(server().complete({{"prompt", "p"}, {"model", "gpt"}}).body.at("error").at("code"),
            "model_not_found");
  EXPECT_EQ(server().post("/v1/completions", "{]").status, 400);
}

TEST_F(Http, BodiesThatAreTooLargeOrForms) {
  EXPECT_EQ(server().post("/v1/completions", std::string(2 * MiB, ' ')).status, 413);
  const Answer too_large = server().post("/v1/completions", std::string(2 * MiB, ' '));
  EXPECT_THAT(too_large.error(), HasSubstr("1048576 bytes"));
  // Chunked: its length is known only when it is too late.
  const auto endless = [](std::size_t offset, httplib::DataSink& sink) {
    const std::string piece(64 * KiB, ' ');
    if (offset > 2 * MiB) return sink.done(), true;
    return sink.write(piece.data(), piece.size());
  };
  auto client = server().client();
  const auto chunked = client.Post("/v1/completions", endless, "application/json");
  // The server may have answered and closed before all was sent.
  if (chunked) {
    EXPECT_EQ(as_answer(chunked).status, 413) << as_answer(chunked).text;
  }
  EXPECT_EQ(server().get("/health").status, 200);
  // What curl -d sends without a header: longer than a form may be for the HTTP library, and fine
  // here.
  const Json body = {{"prompt", std::string(12000, 'f')}, {"max_tokens", 1}};
  const auto as_form = as_answer(
      server().client().Post("/v1/completions", body.dump(), "application/x-www-form-urlencoded"));
  EXPECT_EQ(as_form.status, 200) << as_form.text;
  const httplib::MultipartFormDataItems items = {{"prompt", "p", "", ""}};
  EXPECT_EQ(as_answer(server().client().Post("/v1/completions", items)).status, 415);
}

TEST_F(Http, UnknownPathsAndMethodsSayWhatThereIs) {
  const Answer unknown = server().get("/v1/chat/completions");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.error(), HasSubstr("POST /v1/completions"));
  EXPECT_THAT(unknown.error(), Not(HasSubstr("/admin/")));
  const Answer wrong_method = server().get("/v1/completions");
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_THAT(wrong_method.error(), HasSubstr("use POST"));
}

TEST_F(Http, WithoutAdminThereIsNoDrop) {
  EXPECT_EQ(server().post("/admin/cache/drop", R"({"tiers": ["hbm"]})").status, 404);
}

TEST_F(Http, MetricsMoveWithRequests) {
  auto before = server().metrics();
  const Json body = {{"prompt", std::string(200, 'm')}, {"max_tokens", 4}};
  server().complete(body);
  server().complete(body);
  server().complete({{"prompt", ""}});
  auto after = server().metrics();
  const auto grew = [&](const std::string& series) { return after[series] - before[series]; };
  EXPECT_EQ(grew("terrace_requests_total{outcome=\"length\"}"), 2);
  EXPECT_EQ(grew("terrace_requests_total{outcome=\"http_400\"}"), 1);
  EXPECT_EQ(grew("terrace_prompt_tokens_total"), 402);
  EXPECT_EQ(grew("terrace_generation_tokens_total"), 8);
  EXPECT_EQ(grew("terrace_cached_prompt_tokens_total{place=\"hbm\"}"), 192);
  EXPECT_EQ(grew("terrace_cache_hit_tokens_total{place=\"hbm\"}"), 192);
  EXPECT_EQ(grew("terrace_time_to_first_token_seconds_count"), 2);
  EXPECT_GT(after.at("terrace_cache_used_bytes{place=\"hbm\"}"), 0);
  EXPECT_LE(after.at("terrace_cache_capacity_bytes{place=\"hbm\"}"), 8.0 * MiB);
  EXPECT_EQ(after.at("terrace_cache_mode{mode=\"hbm_is_host\"}"), 1);
}

TEST_F(Http, ASecondServerOnThePortIsRefused) {
  ServerOptions options;
  options.port = server().port();
  Server second(server().session(), options);
  try {
    second.bind();
    FAIL() << "two servers on one port";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(server().port())));
    EXPECT_THAT(error.what(), HasSubstr("--port"));
  }
}

TEST(HttpAdmin, DropEmptiesTiersAndTheAnswerStaysTheSame) {
  ServerOptions options;
  options.admin = true;
  Running server(tiny(), options);
  const Json body = {
      {"prompt", std::string(160, 'd')}, {"max_tokens", 6}, {"return_token_ids", true}};
  const Json cold = server.complete(body).body;
  const Answer dropped = server.post("/admin/cache/drop", R"({"tiers": ["hbm"]})");
  ASSERT_EQ(dropped.status, 200) << dropped.text;
  EXPECT_GE(dropped.body.at("dropped_copies"), 10);
  const Json from_dram = server.complete(body).body;
  EXPECT_EQ(from_dram.at("terrace").at("cached_tokens_by_tier"),
            (Json{{"hbm", 0}, {"dram", 160}, {"nvme", 0}}));
  EXPECT_EQ(from_dram.at("choices"), cold.at("choices"));
  EXPECT_EQ(server.post("/admin/cache/drop", R"({"tiers": ["hbm", "dram"]})").status, 200);
  const Json computed = server.complete(body).body;
  EXPECT_EQ(computed.at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
  EXPECT_EQ(computed.at("choices"), cold.at("choices"));
  EXPECT_EQ(server.post("/admin/cache/drop", R"({"tiers": ["ram"]})").status, 400);
}

TEST(HttpLimits, HbmThatIsTooSmallIsNamedWithItsSize) {
  auto options = tiny();
  options.cache.hbm_bytes = 96 * KiB;
  Running server(options);
  const std::uint32_t fits = server.session().context_tokens();
  EXPECT_LE(fits, 256u);
  const Answer refused = server.complete({{"prompt", std::string(1000, 'h')}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.error(),
              AllOf(HasSubstr("HBM is too small"), HasSubstr("96 KiB"), HasSubstr("KiB of KV")));
  // An answer ends where HBM does, as it would at the end of the context.
  const Answer cut = server.complete({{"prompt", std::string(100, 'h')}, {"max_tokens", 1000}});
  EXPECT_EQ(cut.body.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(cut.body.at("usage").at("total_tokens"), fits);
}

// A request that takes a while: 12,000 tokens of prompt, and an answer.
Json long_request(char letter) {
  return {{"prompt", std::string(12000, letter)}, {"max_tokens", 20}};
}

void wait_for(const Running& server, const std::string& series, double value) {
  for (int i = 0; i < 2000 && server.metrics()[series] < value; ++i)
    std::this_thread::sleep_for(2ms);
  ASSERT_GE(server.metrics()[series], value) << series;
}

TEST(HttpQueue, LookingIsNeverBlockedAndTooManyAreRefused) {
  ServerOptions options;
  options.waiting_max = 1;
  Running server(tiny(), options);
  const auto ask = [&](char letter) { return server.complete(long_request(letter)).status; };
  auto first = std::async(std::launch::async, ask, 'a');
  wait_for(server, "terrace_requests_running", 1);
  auto second = std::async(std::launch::async, ask, 'b');
  wait_for(server, "terrace_requests_waiting", 1);
  const Answer third = server.complete({{"prompt", "c"}});
  EXPECT_EQ(third.status, 503);
  EXPECT_THAT(third.error(), HasSubstr("too many requests"));
  EXPECT_EQ(third.headers.count("Retry-After"), 1u);
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(first.get(), 200);
  EXPECT_EQ(second.get(), 200);
}

TEST(HttpQueue, StopAnswersWhatRunsAndRefusesWhatWaits) {
  Running server(tiny());
  auto first =
      std::async(std::launch::async, [&] { return server.complete(long_request('a')).status; });
  wait_for(server, "terrace_requests_running", 1);
  auto second =
      std::async(std::launch::async, [&] { return server.complete(long_request('b')).status; });
  wait_for(server, "terrace_requests_waiting", 1);
  server.stop();
  EXPECT_EQ(first.get(), 200);
  EXPECT_EQ(second.get(), 503);
  EXPECT_EQ(server.get("/health").status, 0);
}

}  // namespace
}  // namespace terrace::serve
