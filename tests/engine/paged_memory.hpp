// Blocks of KV for tests: each block is memory of its own, so that nothing can rely on blocks being
// neighbours.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/forward.hpp"

namespace terrace::test {

class PagedMemory {
 public:
  PagedMemory(const engine::ModelConfig& config, std::uint32_t tokens, std::uint32_t block_tokens)
      : block_tokens_(block_tokens) {
    const std::uint32_t count = (tokens + block_tokens - 1) / block_tokens;
    // NaN everywhere: a read of a token that was never written spoils the result.
    const std::size_t floats = engine::block_bytes(config, block_tokens) / sizeof(float);
    for (std::uint32_t i = 0; i < count; ++i) storage_.emplace_back(floats, NAN);
    for (auto& block : storage_) pointers_.push_back(reinterpret_cast<std::byte*>(block.data()));
  }

  engine::PagedKv kv() const { return {pointers_, block_tokens_}; }
  std::vector<float>& block(std::size_t index) { return storage_[index]; }
  std::uint32_t block_tokens() const { return block_tokens_; }

 private:
  std::uint32_t block_tokens_;
  std::vector<std::vector<float>> storage_;
  std::vector<std::byte*> pointers_;
};

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

}  // namespace terrace::test
