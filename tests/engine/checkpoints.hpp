// Checkpoints for tests: random tensors in memory, and safetensors files written from them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/tensor_source.hpp"
#include "engine/weights.hpp"

namespace terrace::test {

// A directory of its own for one test, removed at its end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "terrace-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << content;
  ASSERT_TRUE(out.flush());
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// What a safetensors file of this header and data looks like.
inline std::string safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + header + data;
}

// Small random numbers under the names a configuration asks for.
class RandomTensors final : public engine::TensorSource {
 public:
  RandomTensors(const engine::ModelConfig& config, unsigned seed, float spread = 0.4F) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-spread, spread);
    for (engine::TensorSpec& spec : engine::required_tensors(config)) {
      engine::TensorInfo info{std::move(spec.name), "F32", std::move(spec.shape), 0};
      std::vector<float>& values = values_[info.name];
      values.resize(info.elements());
      const float middle = info.name.find("norm") != std::string::npos ? 1.0F : 0.0F;
      for (float& value : values) value = middle + uniform(random);
      tensors_.push_back(std::move(info));
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  std::span<const engine::TensorInfo> tensors() const override { return tensors_; }
  std::span<const std::byte> read(const engine::TensorInfo& tensor, std::uint64_t first,
                                  std::uint64_t count, std::vector<std::byte>&) const override {
    return std::as_bytes(std::span(values_.at(tensor.name)).subspan(first, count));
  }
  std::string name() const override { return "random tensors"; }

  std::vector<float>& values(const std::string& tensor) { return values_.at(tensor); }
  const std::vector<float>& values(const std::string& tensor) const { return values_.at(tensor); }

  // Writes the tensors [first, end) of tensors() as one file.
  void write(const std::filesystem::path& path, std::size_t first, std::size_t end) const {
    nlohmann::json header;
    std::string data;
    for (std::size_t i = first; i < end; ++i) {
      const auto bytes = std::as_bytes(std::span(values_.at(tensors_[i].name)));
      header[tensors_[i].name] = {{"dtype", "F32"},
                                  {"shape", tensors_[i].shape},
                                  {"data_offsets", {data.size(), data.size() + bytes.size()}}};
      data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    header["__metadata__"] = {{"format", "pt"}};
    write_file(path, safetensors(header.dump(), data));
  }
  void write(const std::filesystem::path& path) const { write(path, 0, tensors_.size()); }

  // Writes two shards and their index.
  void write_sharded(const std::filesystem::path& directory) const {
    const std::size_t half = tensors_.size() / 2;
    write(directory / "model-00001-of-00002.safetensors", 0, half);
    write(directory / "model-00002-of-00002.safetensors", half, tensors_.size());
    nlohmann::json index;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      index["weight_map"][tensors_[i].name] =
          i < half ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
    }
    write_file(directory / "model.safetensors.index.json", index.dump());
  }

 private:
  std::vector<engine::TensorInfo> tensors_;
  std::map<std::string, std::vector<float>> values_;
};

// A small model whose sizes are no multiples of anything.
inline engine::ModelConfig odd_config() {
  engine::ModelConfig config;
  config.hidden_size = 60;
  config.intermediate_size = 172;
  config.layers = 2;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 10;
  config.vocab_size = 300;
  config.max_positions = 256;
  return config;
}

inline nlohmann::json config_json(const engine::ModelConfig& config) {
  return {{"architectures", {config.architecture}},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_hidden_layers", config.layers},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"vocab_size", config.vocab_size},
          {"max_position_embeddings", config.max_positions},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", config.rope_theta},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", config.tied_embeddings},
          {"bos_token_id", 1},
          {"eos_token_id", 2}};
}

// The text of the LoadError that `work` must throw.
template <class Error, class Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace terrace::test
