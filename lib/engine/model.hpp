// A model, from its name to weights in memory: a Hugging Face directory, or a built-in one. Called
// by whoever starts an engine.
// Thread rule: call from one thread; a LoadedModel is const and shared afterwards.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/weights.hpp"
#include "terrace/identity.hpp"

namespace terrace::engine {

struct LoadOptions {
  unsigned threads = 0;  // 0: one a core
  std::optional<std::filesystem::path>
      digest_dir;     // where weights digests are remembered; none: always hash
  Progress progress;  // may be empty
};

struct LoadedModel {
  std::string name;  // last part of the directory, or "builtin:tiny"
  std::optional<std::filesystem::path>
      directory;  // none for a built-in model; the tokenizer's files are there
  Weights weights;
  Digest weights_digest{};
  Digest attention_digest{};

  const ModelConfig& config() const noexcept { return weights.config; }
};

// Loads `spec`: "builtin:tiny", "builtin:small" or the path of a directory with config.json and
// safetensors. Throws LoadError that names the file, the field or tensor, and what to do.
LoadedModel load_model(const std::string& spec, const LoadOptions& options = {});

}  // namespace terrace::engine
