// Directories that a real cache has made, and their damage.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cache/harness.hpp"
#include "index/sample.hpp"

namespace terrace::test {

// 32 KiB a block, 36 KiB a record; 96 MiB are worth an index.
class DirectoryTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBlocks = 12;
  static constexpr std::uint64_t kBlockBytes = 32 * KiB;
  static constexpr std::uint64_t kRecordBytes = 36 * KiB;
  static constexpr std::uint64_t kWithIndex = 96 * MiB;
  static constexpr std::uint64_t kWithoutIndex = 4 * MiB;

  // Two prompts that share their first eight blocks: ten blocks. And two of another tenant.
  void make(std::uint64_t nvme_bytes) {
    ToyEngine engine(options(nvme_bytes), layout());
    Tokens prompt = tokens_from(100, 9 * 16);
    engine.serve(prompt);
    prompt.back() = 7;
    engine.serve(prompt);
    Scope scope;
    scope.tenant_salt = "tenant";
    engine.serve(tokens_from(100, 2 * 16), scope);
    EXPECT_TRUE(engine.cache().close());
  }
  Options options(std::uint64_t nvme_bytes) const {
    return toy_options(32, 32, cache_, nvme_bytes, layout());
  }
  static Layout layout() { return Layout::full(4, 4, 32, KvDtype::f16); }

  TempDir directory_{std::filesystem::current_path()};
  const std::string cache_ = directory_ / "cache";
  const std::string data_ = cache_ + "/blocks.dat";
  const std::string manifest_ = cache_ + "/terrace.manifest";
};

}  // namespace terrace::test
