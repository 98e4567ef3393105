#include "serve/demo/demo.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <ostream>
#include <system_error>

#include "serve/demo/child_server.hpp"
#include "serve/demo/client.hpp"
#include "serve/demo/prompt.hpp"
#include "serve/demo/table.hpp"

namespace terrace::demo {
namespace {

namespace fs = std::filesystem;
using SteadyClock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kStartTimeout = 10min;  // loading and hashing a large checkpoint
constexpr auto kStopTimeout = 60s;
constexpr auto kWriteTimeout = 60s;
constexpr std::size_t kSampleBytes = 256;  // of the first request of each server

class DemoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const fs::path& parent) {
    std::string pattern = (parent / "terrace-demo-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr)
      throw DemoError("cannot create a directory in " + parent.string());
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
};

class Demo {
 public:
  Demo(const DemoOptions& options, std::ostream& out, const std::atomic<bool>& interrupted)
      : options_(options), out_(out), interrupted_(interrupted), directory_(options.directory) {}

  void run();
  std::string server_log() const { return server_ ? server_->log_text() : std::string(); }

 private:
  void start_server();
  void warm_up();
  void choose_prompt();
  void request(const std::string& state, std::uint32_t Completion::*from);
  void drop(const std::vector<std::string>& tiers);
  void how_to_go_on();
  void wait(const std::string& what, const std::function<void()>& work);
  void clear_line();

  const DemoOptions& options_;
  std::ostream& out_;
  const std::atomic<bool>& interrupted_;
  TemporaryDirectory directory_;
  std::unique_ptr<ChildServer> server_;
  Completion sample_;  // of the last warm-up
  std::string prompt_;
  Completion cold_;
};

void Demo::run() {
  start_server();
  choose_prompt();
  out_ << table_head();
  request("cold", nullptr);
  request("HBM", &Completion::hbm_tokens);
  drop({"hbm"});
  request("DRAM", &Completion::dram_tokens);
  drop({"hbm", "dram"});
  request("NVMe", &Completion::nvme_tokens);

  wait("ending the server with SIGTERM", [&] {
    const int code = server_->terminate(kStopTimeout);
    if (code != 0)
      throw DemoError("the server did not end well on SIGTERM: exit code " + std::to_string(code));
  });
  start_server();
  request("clean restart", &Completion::nvme_tokens);

  wait("waiting until the cache is written",
       [&] { Client(server_->port()).wait_written(kWriteTimeout); });
  server_->kill();
  start_server();
  request("kill -9, restart", &Completion::nvme_tokens);
  how_to_go_on();
}

// The child belongs to this thread, so this is done here, not in wait()'s.
void Demo::start_server() {
  server_.reset();
  const std::vector<std::string> arguments = {"--model",
                                              options_.model,
                                              "--port",
                                              "0",
                                              "--admin",
                                              "--nvme-path",
                                              (directory_.path() / "nvme").string(),
                                              "--nvme-bytes",
                                              "1GiB"};
  server_ =
      std::make_unique<ChildServer>(options_.server, arguments, directory_.path() / "server.log");
  wait("starting terrace-serve --model " + options_.model, [&] {
    if (!server_->wait_listening(kStartTimeout)) throw DemoError("the server did not start");
  });
  warm_up();
}

// The first request of a process also pays for page faults and for code that is made for its
// machine: no row should. It has a salt of its own, so that the long prompt finds nothing of it.
void Demo::warm_up() {
  wait("warming up", [&] {
    sample_ = Client(server_->port()).complete(lighthouse_log(kSampleBytes), 2, "warm-up");
  });
}

// As many bytes as make the tokens that are wanted, by what the warm-up showed of this tokenizer.
void Demo::choose_prompt() {
  Client client(server_->port());
  const std::uint32_t tokens = std::min(options_.prompt_tokens, client.context_tokens() / 4 * 3);
  const double bytes_per_token = static_cast<double>(kSampleBytes) / sample_.prompt_tokens;
  prompt_ = lighthouse_log(static_cast<std::size_t>(tokens * bytes_per_token));
  out_ << "\nOne prompt of about " << tokens << " tokens to " << client.model_name()
       << ", NVMe tier in " << options_.directory.string() << ", on this machine's CPU.\n\n";
}

// One request, one row. `from`: the tier that it should be answered from.
void Demo::request(const std::string& state, std::uint32_t Completion::*from) {
  Completion completion;
  wait(state, [&] { completion = Client(server_->port()).complete(prompt_, options_.max_tokens); });
  if (from == nullptr) {
    cold_ = completion;
    out_ << table_row(state, cold_, cold_) << std::flush;
    if (cold_.cached_tokens() != 0)
      throw DemoError("the cold request found cached tokens: that cannot be");
    return;
  }
  out_ << table_row(state, completion, cold_) << std::flush;
  if (completion.token_ids != cold_.token_ids)
    throw DemoError("the answer differs from the cold one");
  // A whole prompt is never cached: one token at least is computed, and only whole blocks are kept.
  if (completion.*from < completion.prompt_tokens / 10 * 9) {
    throw DemoError("only " + std::to_string(completion.*from) + " of " +
                    std::to_string(completion.prompt_tokens) +
                    " prompt tokens came from where they should");
  }
}

void Demo::drop(const std::vector<std::string>& tiers) {
  wait("emptying tiers", [&] { Client(server_->port()).drop(tiers); });
}

void Demo::how_to_go_on() {
  out_ << "\nSame tokens each time: " << cold_.token_ids.size()
       << " token ids compared in every row.\n\n"
       << "Go on with a server of your own, whose cache outlives it:\n\n"
       << "  " << options_.server.string() << " --model " << options_.model
       << " --nvme-path ~/terrace-cache\n"
       << "  curl http://127.0.0.1:8000/v1/completions -d '{\"prompt\": \"Once upon a time\", "
          "\"max_tokens\": 32}'\n"
       << "  curl http://127.0.0.1:8000/metrics | grep terrace_\n\n"
       << "Or take the demo to a checkpoint: make demo MODEL=DIR (a Hugging Face directory).\n";
}

// Runs `work` beside a line that says what is waited for, and how long already.
void Demo::wait(const std::string& what, const std::function<void()>& work) {
  const auto start = SteadyClock::now();
  auto done = std::async(std::launch::async, work);
  while (done.wait_for(100ms) != std::future_status::ready) {
    if (interrupted_) {
      server_->kill();  // ends the request that is waited for
      done.wait();
      clear_line();
      throw DemoError("interrupted");
    }
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(SteadyClock::now() - start).count();
    if (options_.terminal) out_ << "\r\x1b[K  " << what << " ... " << seconds << " s" << std::flush;
  }
  clear_line();
  done.get();
}

void Demo::clear_line() {
  if (options_.terminal) out_ << "\r\x1b[K" << std::flush;
}

}  // namespace

int run_demo(const DemoOptions& options, std::ostream& out, const std::atomic<bool>& interrupted) {
  std::unique_ptr<Demo> demo;
  try {
    demo = std::make_unique<Demo>(options, out, interrupted);
    demo->run();
    return 0;
  } catch (const std::exception& error) {
    out << "\nterrace-demo: " << error.what() << "\n";
    const std::string log = demo && !interrupted ? demo->server_log() : std::string();
    if (!log.empty()) out << "\nThe server's log:\n" << log;
    out << std::flush;
    return 1;
  }
}

}  // namespace terrace::demo
