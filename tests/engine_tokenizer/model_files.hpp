// Small model directories for the tokenizer's tests: a tokenizer.json built in the test, in a
// folder that goes with it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.hpp"

namespace terrace::test {

using nlohmann::json;
using Ids = std::vector<std::uint32_t>;

class ModelFiles {
 public:
  ModelFiles() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() /
            ("terrace_tokenizer_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~ModelFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ModelFiles(const ModelFiles&) = delete;
  ModelFiles& operator=(const ModelFiles&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const char* name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

 private:
  std::filesystem::path path_;
};

// A BPE model in which the tokens have the ids 0, 1, 2... in the order given.
inline json bpe(const std::vector<std::string>& tokens, json merges = json::array()) {
  json vocabulary = json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) vocabulary[tokens[id]] = id;
  return {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", std::move(merges)}};
}

inline json document(json model) {
  return {{"version", "1.0"}, {"added_tokens", json::array()}, {"model", std::move(model)}};
}

inline json added(std::uint32_t id, const std::string& content, json flags = json::object()) {
  json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  token.update(flags);
  return token;
}

inline engine::Tokenizer load(const json& tokenizer, const json& config = json()) {
  const ModelFiles files;
  files.write("tokenizer.json", tokenizer.dump());
  if (!config.is_null()) files.write("tokenizer_config.json", config.dump());
  return engine::Tokenizer::load(files.path());
}

// The message that load() throws; empty where it throws nothing.
inline std::string load_error(const json& tokenizer, const json& config = json()) {
  try {
    load(tokenizer, config);
    return "";
  } catch (const engine::LoadError& error) {
    return error.what();
  }
}

// What the tokens of an encoded text look like, joined by "|".
inline std::string pieces(const engine::Tokenizer& tokenizer, const std::string& text) {
  std::string joined;
  for (const std::uint32_t id : tokenizer.encode(text)) {
    joined += (joined.empty() ? "" : "|") + tokenizer.decode(std::vector{id}, false);
  }
  return joined;
}

inline std::string stream(const engine::Tokenizer& tokenizer, const Ids& ids) {
  engine::StreamDecoder decoder(tokenizer);
  std::string text;
  for (const std::uint32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

}  // namespace terrace::test
