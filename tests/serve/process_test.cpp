// The real binary as a child: how it starts, ends, crashes, and comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

#include "serve/demo/child_server.hpp"
#include "serve/demo/client.hpp"
#include "serve/demo/prompt.hpp"
#include "serve/fixture.hpp"

namespace terrace::demo {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

class Process : public testing::Test {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"--model", "builtin:tiny", "--port",        "0",
                                    "--admin", "--nvme-path",  nvme().string(), "--nvme-bytes",
                                    "64MiB",   "--hbm-bytes",  "16MiB",         "--dram-bytes",
                                    "32MiB"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  fs::path nvme() const { return directory_.path() / "nvme"; }

  std::unique_ptr<ChildServer> start(std::vector<std::string> more = {}) const {
    auto server = launch(arguments(std::move(more)));
    EXPECT_TRUE(server->wait_listening(60s)) << server->log_text();
    return server;
  }
  std::unique_ptr<ChildServer> launch(const std::vector<std::string>& arguments) const {
    return std::make_unique<ChildServer>(TERRACE_SERVE_BINARY, arguments,
                                         directory_.path() / "log");
  }
  // Starts a server that must refuse to. Returns: what it said.
  std::string refusal(const std::vector<std::string>& arguments) const {
    ChildServer server(TERRACE_SERVE_BINARY, arguments, directory_.path() / "refused");
    EXPECT_FALSE(server.wait_listening(60s));
    const int code = server.wait_exit(30s);
    EXPECT_GT(code, 0) << server.log_text();
    return server.log_text();
  }

  test::TemporaryDirectory directory_;
  const std::string prompt_ = lighthouse_log(1000);
};

TEST_F(Process, CleanRestartKeepsTheCache) {
  auto server = start();
  const Completion cold = Client(server->port()).complete(prompt_, 12);
  EXPECT_EQ(cold.cached_tokens(), 0u);
  EXPECT_EQ(server->terminate(30s), 0) << server->log_text();
  server = start();
  const Completion warm = Client(server->port()).complete(prompt_, 12);
  EXPECT_EQ(warm.token_ids, cold.token_ids);
  EXPECT_EQ(warm.nvme_tokens, cold.prompt_tokens / 16 * 16);
  EXPECT_EQ(server->terminate(30s), 0);
}

TEST_F(Process, KillMinusNineKeepsWhatWasWritten) {
  auto server = start();
  Client client(server->port());
  const Completion cold = client.complete(prompt_, 12);
  client.wait_written(30s);
  server->kill();
  server = start();
  const Completion warm = Client(server->port()).complete(prompt_, 12);
  EXPECT_EQ(warm.token_ids, cold.token_ids);
  EXPECT_EQ(warm.nvme_tokens, cold.prompt_tokens / 16 * 16);
}

TEST_F(Process, KillMinusNineInTheMiddleOfWritingNeverHarmsAnAnswer) {
  std::vector<std::uint32_t> expected;
  for (int round = 0; round < 4; ++round) {
    auto server = start();
    Client client(server->port());
    const Completion answer = client.complete(prompt_, 12);
    if (round == 0) expected = answer.token_ids;
    EXPECT_EQ(answer.token_ids, expected) << round;
    client.complete(
        std::string(static_cast<std::size_t>(4000 + round), static_cast<char>('a' + round)), 1);
    server->kill();
  }
}

TEST_F(Process, SigtermFinishesWhatRuns) {
  auto server = start();
  auto running = std::async(std::launch::async, [port = server->port()] {
    return Client(port).complete(std::string(12000, 'r'), 20);
  });
  while (Client(server->port()).metric("terrace_requests_running") < 1)
    std::this_thread::sleep_for(2ms);
  EXPECT_EQ(server->terminate(60s), 0) << server->log_text();
  EXPECT_EQ(running.get().token_ids.size(), 20u);
}

TEST_F(Process, ASecondServerOnTheDirectoryIsRefusedAndTheFirstUnharmed) {
  const auto server = start();
  const std::string said = refusal(arguments());
  EXPECT_THAT(said, AllOf(HasSubstr("error"), HasSubstr(nvme().string()), HasSubstr("process "),
                          HasSubstr("(busy)")));
  Client client(server->port());
  EXPECT_EQ(client.complete(prompt_, 4).token_ids, client.complete(prompt_, 4).token_ids);
}

TEST_F(Process, ASecondServerOnThePortIsRefused) {
  const auto server = start();
  const std::string port = std::to_string(server->port());
  const std::string said =
      refusal({"--model", "builtin:tiny", "--port", port, "--dram-bytes", "16MiB"});
  EXPECT_THAT(said, AllOf(HasSubstr("127.0.0.1:" + port), HasSubstr("Address already in use")));
}

TEST_F(Process, StartupErrorsNameTheCause) {
  EXPECT_THAT(refusal({"--device", "cuda", "--model", "builtin:tiny"}), HasSubstr("--device cuda"));
  EXPECT_THAT(refusal({"--model", "builtin:large"}), HasSubstr("builtin:large"));
  EXPECT_THAT(refusal({"--model", "/nowhere"}), HasSubstr("/nowhere"));
  EXPECT_THAT(refusal({"--hbm-bytes", "1XB"}), HasSubstr("--hbm-bytes"));
  EXPECT_THAT(refusal({"--model", "builtin:tiny", "--host", "256.0.0.1", "--dram-bytes", "16MiB"}),
              HasSubstr("256.0.0.1"));
}

TEST_F(Process, ATruncatedTensorFileIsNamed) {
  TERRACE_REQUIRE_SHARED("models/stories260K/hf/model.safetensors");
  const fs::path model = directory_.path() / "model";
  fs::copy(test::stories(), model);
  fs::permissions(model / "model.safetensors", fs::perms::owner_write, fs::perm_options::add);
  fs::resize_file(model / "model.safetensors", 100'000);
  EXPECT_THAT(refusal({"--model", model.string()}), HasSubstr("model.safetensors"));
  fs::remove(model / "model.safetensors");
  EXPECT_THAT(refusal({"--model", model.string()}), HasSubstr("safetensors"));
}

// One byte in the middle of every block of the payload: whichever record it is in, it must not be
// believed.
TEST_F(Process, ACorruptByteIsAMissACounterAndTheRightAnswer) {
  auto server = start();
  const Completion cold = Client(server->port()).complete(prompt_, 12);
  ASSERT_EQ(server->terminate(30s), 0);
  fs::path data;
  std::uintmax_t largest = 0;
  for (const auto& file : fs::recursive_directory_iterator(nvme())) {
    if (!file.is_regular_file() || file.file_size() < largest) continue;
    largest = file.file_size();
    data = file.path();
  }
  std::fstream stream(data, std::ios::in | std::ios::out | std::ios::binary);
  for (std::uintmax_t at = 2048; at < largest; at += 4096) {
    stream.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(stream.get() ^ 0x40);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(byte);
  }
  stream.close();
  server = start();
  Client client(server->port());
  const Completion answer = client.complete(prompt_, 12);
  EXPECT_EQ(answer.token_ids, cold.token_ids);
  EXPECT_LT(answer.nvme_tokens, cold.prompt_tokens / 2);
  EXPECT_GE(client.metric("terrace_cache_corrupt_blocks_total{place=\"nvme\"}"), 1);
  EXPECT_EQ(client.complete(prompt_, 12).token_ids, cold.token_ids);
}

TEST_F(Process, ProgressAndReadinessAreTold) {
  auto server = start();
  EXPECT_EQ(server->terminate(30s), 0);
  EXPECT_THAT(server->log_text(),
              AllOf(HasSubstr("model builtin:tiny"), HasSubstr("writing the cache")));
}

}  // namespace
}  // namespace terrace::demo
