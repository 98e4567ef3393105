#include "engine/model.hpp"

#include <fmt/format.h>

#include "engine/builtin.hpp"
#include "engine/safetensors.hpp"
#include "engine/tokenizer/load_error.hpp"
#include "engine/weights_digest.hpp"

namespace terrace::engine {
namespace {

constexpr std::string_view kBuiltinPrefix = "builtin:";

LoadedModel load_builtin(const std::string& spec, const LoadOptions& options) {
  const std::string size = spec.substr(kBuiltinPrefix.size());
  if (size != "tiny" && size != "small") {
    throw LoadError(
        fmt::format("\"{}\": there is no such built-in model; use builtin:tiny, "
                    "builtin:small or the path of a model directory",
                    spec));
  }
  const auto which = size == "tiny" ? BuiltinSize::tiny : BuiltinSize::small;
  const BuiltinSource source(which);
  ThreadTeam team(options.threads);
  LoadedModel model;
  model.name = spec;
  model.weights = build_weights(builtin_config(which), source, team, options.progress);
  model.weights_digest = hash_weights(source, team, options.progress);
  return model;
}

LoadedModel load_directory(const std::filesystem::path& directory, const LoadOptions& options) {
  if (!std::filesystem::is_directory(directory)) {
    throw LoadError(
        fmt::format("\"{}\" is not a directory; give the directory of a Hugging Face "
                    "checkpoint, or builtin:tiny or builtin:small",
                    directory.string()));
  }
  const ModelConfig config = read_config(directory);
  const Checkpoint checkpoint(directory);
  ThreadTeam team(options.threads);
  std::optional<DigestMemory> memory;
  if (options.digest_dir) memory.emplace(*options.digest_dir);
  LoadedModel model;
  const auto absolute = std::filesystem::absolute(directory).lexically_normal();
  model.name = (absolute.has_filename() ? absolute : absolute.parent_path()).filename().string();
  model.directory = directory;
  model.weights = build_weights(config, checkpoint, team, options.progress);
  model.weights_digest =
      checkpoint_digest(checkpoint, memory ? &*memory : nullptr, team, options.progress);
  return model;
}

}  // namespace

LoadedModel load_model(const std::string& spec, const LoadOptions& options) {
  LoadedModel model = spec.starts_with(kBuiltinPrefix) ? load_builtin(spec, options)
                                                       : load_directory(spec, options);
  model.attention_digest = model.config().attention_digest();
  return model;
}

}  // namespace terrace::engine
