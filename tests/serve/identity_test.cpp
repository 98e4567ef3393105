// Who may use whose KV: a copy of the model may, everything that differs in one byte may not. In
// one NVMe directory.
#include <gtest/gtest.h>

#include "engine/session.hpp"
#include "serve/fixture.hpp"

namespace terrace::engine {
namespace {

namespace fs = std::filesystem;

// A copy of stories260K that can be changed, and an NVMe directory that outlives sessions.
class Identity : public testing::Test {
 protected:
  void SetUp() override {
    TERRACE_REQUIRE_SHARED("models/stories260K/hf/model.safetensors");
    copy("model");
  }

  fs::path copy(const std::string& name) const {
    const fs::path to = directory_.path() / name;
    fs::copy(test::stories(), to);
    for (const auto& file : fs::directory_iterator(to)) {
      fs::permissions(file.path(), fs::perms::owner_write, fs::perm_options::add);
    }
    return to;
  }

  // One request in a session of its own. Returns: how many of its prompt's 48 whole-block tokens
  // were found.
  std::uint32_t cached(const fs::path& model, std::uint32_t block_tokens = 16,
                       std::optional<std::string_view> salt = std::nullopt) {
    auto options = test::small_session(model.string());
    options.block_tokens = block_tokens;
    options.cache.nvme_paths = {(directory_.path() / "nvme").string()};
    options.cache.nvme_bytes = 64 * MiB;
    const auto session = Session::open(options);
    GenerateRequest request;
    request.prompt = prompt_;
    request.max_tokens = 4;
    request.tenant_salt = salt;
    const Generation answer = session->generate(request);
    EXPECT_TRUE(session->close());
    return answer.cached_tokens[kHbm0] + answer.cached_tokens[kDram0] +
           answer.cached_tokens[kNvme0];
  }

  static void flip_last_byte(const fs::path& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-1, std::ios::end);
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(-1, std::ios::end);
    stream.put(byte);
    ASSERT_TRUE(stream.good());
  }

  test::TemporaryDirectory directory_;
  const std::vector<TokenId> prompt_ = [] {
    std::vector<TokenId> tokens = {1};
    while (tokens.size() < 49) tokens.push_back(static_cast<TokenId>(300 + tokens.size() * 3));
    return tokens;
  }();
};

TEST_F(Identity, TheSameModelElsewhereIsTheSameModel) {
  EXPECT_EQ(cached(directory_.path() / "model"), 0u);
  EXPECT_EQ(cached(directory_.path() / "model"), 48u);
  EXPECT_EQ(cached(copy("elsewhere")), 48u);
}

TEST_F(Identity, OneByteOfTheWeights) {
  const fs::path changed = copy("changed");
  flip_last_byte(changed / "model.safetensors");
  EXPECT_EQ(cached(directory_.path() / "model"), 0u);
  EXPECT_EQ(cached(changed), 0u);
  EXPECT_EQ(cached(changed), 48u);
  EXPECT_EQ(cached(directory_.path() / "model"), 48u);
}

TEST_F(Identity, OneMergeOfTheTokenizer) {
  const fs::path changed = copy("changed");
  std::ifstream in(changed / "tokenizer.json");
  auto tokenizer = nlohmann::json::parse(in);
  in.close();
  auto& merges = tokenizer.at("model").at("merges");
  ASSERT_GT(merges.size(), 1u);
  merges.erase(merges.size() - 1);
  std::ofstream(changed / "tokenizer.json") << tokenizer.dump();
  EXPECT_EQ(cached(directory_.path() / "model"), 0u);
  EXPECT_EQ(cached(changed), 0u);
  EXPECT_EQ(cached(directory_.path() / "model"), 48u);
}

TEST_F(Identity, AnotherRopeBase) {
  const fs::path changed = copy("changed");
  std::ifstream in(changed / "config.json");
  auto config = nlohmann::json::parse(in);
  in.close();
  config["rope_theta"] = 20000.0;
  std::ofstream(changed / "config.json") << config.dump();
  EXPECT_EQ(cached(directory_.path() / "model"), 0u);
  EXPECT_EQ(cached(changed), 0u);
  EXPECT_EQ(cached(directory_.path() / "model"), 48u);
}

TEST_F(Identity, AnotherSalt) {
  const fs::path model = directory_.path() / "model";
  EXPECT_EQ(cached(model), 0u);
  EXPECT_EQ(cached(model, 16, "a"), 0u);
  EXPECT_EQ(cached(model, 16, "b"), 0u);
  EXPECT_EQ(cached(model, 16, "a"), 48u);
  EXPECT_EQ(cached(model), 48u);
}

TEST_F(Identity, AnotherBlockSize) {
  const fs::path model = directory_.path() / "model";
  EXPECT_EQ(cached(model, 16), 0u);
  EXPECT_EQ(cached(model, 8), 0u);
  EXPECT_EQ(cached(model, 8), 48u);
}

}  // namespace
}  // namespace terrace::engine
