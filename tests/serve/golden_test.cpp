// stories260K through the real server: the golden greedy ids in every state the cache can be in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "serve/demo/child_server.hpp"
#include "serve/demo/client.hpp"
#include "serve/fixture.hpp"

namespace terrace::demo {
namespace {

using namespace std::chrono_literals;

struct Case {
  std::string name;
  std::vector<TokenId> prompt;
  std::vector<TokenId> expected;
};

// The nine cases, and each of them again half answered: the blocks that decode filled are found by
// those.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& golden : test::golden_cases()) {
    const auto prompt = test::ids(golden.at("prompt_ids"));
    const auto answer = test::ids(golden.at("generated_ids"));
    const std::string name = golden.at("name");
    all.push_back({name, prompt, answer});
    const auto half = answer.begin() + static_cast<std::ptrdiff_t>(answer.size() / 2);
    Case later{name + ", half answered", prompt, {half, answer.end()}};
    later.prompt.insert(later.prompt.end(), answer.begin(), half);
    all.push_back(std::move(later));
  }
  return all;
}

class Golden : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    TERRACE_REQUIRE_SHARED("models/stories260K/golden_greedy.json");
    cases_ = cases();
    ASSERT_EQ(cases_.size(), 18u);
  }

  void start(const std::string& hbm_bytes = "16MiB", const std::string& dram_bytes = "32MiB") {
    server_.reset();
    const std::vector<std::string> arguments = {"--model",
                                                test::stories().string(),
                                                "--port",
                                                "0",
                                                "--admin",
                                                "--block-tokens",
                                                std::to_string(GetParam()),
                                                "--nvme-path",
                                                (directory_.path() / "nvme").string(),
                                                "--nvme-bytes",
                                                "128MiB",
                                                "--hbm-bytes",
                                                hbm_bytes,
                                                "--dram-bytes",
                                                dram_bytes};
    server_ =
        std::make_unique<ChildServer>(TERRACE_SERVE_BINARY, arguments, directory_.path() / "log");
    ASSERT_TRUE(server_->wait_listening(60s)) << server_->log_text();
  }
  Client client() const { return Client(server_->port()); }

  // Every case, right to the last id. Returns: how many tokens were found where.
  Completion check_all(const std::string& state, const std::string& salt = {}) const {
    Completion found;
    for (const Case& golden : cases_) {
      const auto max_tokens = static_cast<std::uint32_t>(golden.expected.size());
      const Completion answer = client().complete(golden.prompt, max_tokens, salt);
      EXPECT_EQ(answer.token_ids, golden.expected) << golden.name << ", " << state;
      found.hbm_tokens += answer.hbm_tokens;
      found.dram_tokens += answer.dram_tokens;
      found.nvme_tokens += answer.nvme_tokens;
    }
    return found;
  }

  // Tokens of all prompts that lie in whole blocks and are not the last one: what a warm cache must
  // find.
  std::uint32_t findable() const {
    std::uint32_t tokens = 0;
    for (const Case& golden : cases_) {
      tokens += static_cast<std::uint32_t>(golden.prompt.size() - 1) / GetParam() * GetParam();
    }
    return tokens;
  }

  test::TemporaryDirectory directory_;
  std::unique_ptr<ChildServer> server_;
  std::vector<Case> cases_;
};

INSTANTIATE_TEST_SUITE_P(BlockTokens, Golden, testing::Values(1, 7, 16, 64));

TEST_P(Golden, IdsAreTheSameInEveryState) {
  start();
  check_all("cold");
  const Completion hbm = check_all("HBM");
  EXPECT_EQ(hbm.hbm_tokens, findable());

  client().drop({"hbm"});
  const Completion dram = check_all("DRAM");
  EXPECT_EQ(dram.cached_tokens(), findable());
  EXPECT_GT(dram.dram_tokens, 0u);
  EXPECT_EQ(dram.nvme_tokens, 0u);

  client().drop({"hbm", "dram"});
  const Completion nvme = check_all("NVMe");
  EXPECT_EQ(nvme.cached_tokens(), findable());
  EXPECT_GT(nvme.nvme_tokens, 0u);

  ASSERT_EQ(server_->terminate(60s), 0) << server_->log_text();
  start();
  const Completion restarted = check_all("after a clean restart");
  EXPECT_EQ(restarted.cached_tokens(), findable());
  EXPECT_GT(restarted.nvme_tokens, 0u);

  client().wait_written(60s);
  server_->kill();
  start();
  const Completion crashed = check_all("after kill -9");
  EXPECT_EQ(crashed.cached_tokens(), findable());
  EXPECT_GT(crashed.nvme_tokens, 0u);
}

// A token takes 1,280 bytes. The longest case has 435 tokens: HBM holds 512, and no two long ones.
TEST_P(Golden, IdsAreTheSameWhereHbmHoldsOneRequestOnly) {
  start(std::to_string(512 * 1280), "1MiB");
  for (int round = 0; round < 2; ++round) {
    check_all("small HBM, round " + std::to_string(round));
  }
  EXPECT_GT(client().metric("terrace_cache_evicted_blocks_total{place=\"hbm\"}") +
                client().metric("terrace_cache_dropped_blocks_total{place=\"hbm\"}"),
            0);
}

}  // namespace
}  // namespace terrace::demo
