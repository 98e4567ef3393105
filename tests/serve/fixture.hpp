// What the server's tests share: temporary directories and small sessions.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/session.hpp"
#include "support/shared_data.hpp"
#include "terrace/units.hpp"

namespace terrace::test {

// On the disk of the build tree rather than in memory, so that O_DIRECT is really used where it can
// be.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::current_path() / "serve-test-XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr) << pattern;
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

inline engine::SessionOptions small_session(const std::string& model) {
  engine::SessionOptions options;
  options.model = model;
  options.load.threads = 1;
  options.cache.hbm_bytes = 8 * MiB;
  options.cache.dram_bytes = 8 * MiB;
  options.cache.driver_thread = true;
  return options;
}

inline std::filesystem::path stories() {
  return shared_data() / "models/stories260K/hf";
}

inline nlohmann::json golden_cases() {
  std::ifstream file(shared_data() / "models/stories260K/golden_greedy.json");
  return nlohmann::json::parse(file).at("cases");
}

inline std::vector<TokenId> ids(const nlohmann::json& array) {
  return array.get<std::vector<TokenId>>();
}

}  // namespace terrace::test
