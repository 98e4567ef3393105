#include "engine/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/tokenizer/load_error.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

// One JSON object with the path of its file, so that every error names both.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  // A field that is absent or null is "not there": Hugging Face writes both for "default".
  bool has(const char* name) const {
    const auto it = object_.find(name);
    return it != object_.end() && !it->is_null();
  }
  const json& at(const char* name) const {
    if (!has(name)) throw LoadError(fmt::format("{}: field \"{}\" is missing", where_, name));
    return object_.at(name);
  }
  std::uint32_t count(const char* name) const {
    constexpr std::uint64_t kMost = 1U << 24;  // no product of two such fields overflows 64 bits
    const json& value = at(name);
    if (!value.is_number_integer() || value < 1 || value > kMost) {
      bad(name, fmt::format("an integer from 1 to {}", kMost));
    }
    return value.get<std::uint32_t>();
  }
  std::uint32_t count(const char* name, std::uint32_t fallback) const {
    return has(name) ? count(name) : fallback;
  }
  double positive(const char* name) const {
    const json& value = at(name);
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      bad(name, "a positive number");
    }
    return value.get<double>();
  }
  double positive(const char* name, double fallback) const {
    return has(name) ? positive(name) : fallback;
  }
  bool flag(const char* name, bool fallback) const {
    if (!has(name)) return fallback;
    if (!at(name).is_boolean()) bad(name, "true or false");
    return at(name).get<bool>();
  }
  std::string text(const char* name, const char* fallback) const {
    if (!has(name)) return fallback;
    if (!at(name).is_string()) bad(name, "a string");
    return at(name).get<std::string>();
  }
  Fields object(const char* name) const {
    if (!at(name).is_object()) bad(name, "an object");
    return {at(name), fmt::format("{}: {}", where_, name)};
  }
  // A token id or a list of them; an absent field is an empty list.
  std::vector<std::uint32_t> token_ids(const char* name) const {
    if (!has(name)) return {};
    const json& value = at(name);
    std::vector<std::uint32_t> ids;
    for (const json& id : value.is_array() ? value : json::array({value})) {
      if (!id.is_number_unsigned() || id > UINT32_MAX) bad(name, "a token id or a list of them");
      ids.push_back(id.get<std::uint32_t>());
    }
    return ids;
  }
  [[noreturn]] void bad(const char* name, std::string_view expected) const {
    throw LoadError(fmt::format("{}: field \"{}\" is {}; it must be {}", where_, name,
                                at(name).dump().substr(0, 80), expected));
  }
  [[noreturn]] void unsupported(const char* name, std::string_view advice) const {
    throw LoadError(fmt::format("{}: \"{}\": {} is not supported; {}", where_, name,
                                at(name).dump().substr(0, 80), advice));
  }

 private:
  const json& object_;
  std::string where_;
};

json read_json(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw LoadError(fmt::format("{}: cannot be opened", file.string()));
  json value = json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    throw LoadError(fmt::format("{}: is not a JSON object; download it again", file.string()));
  }
  return value;
}

std::string architecture_of(const Fields& fields) {
  constexpr const char* kAdvice =
      "use a model of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM or Qwen3ForCausalLM";
  if (fields.has("architectures")) {
    const json& list = fields.at("architectures");
    if (!list.is_array() || list.empty() || !list[0].is_string()) {
      fields.bad("architectures", "a list with the name of one architecture");
    }
    const auto name = list[0].get<std::string>();
    for (const char* known :
         {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
      if (name == known) return name;
    }
    fields.unsupported("architectures", kAdvice);
  }
  const std::string type = fields.text("model_type", "");
  if (type == "llama") return "LlamaForCausalLM";
  if (type == "mistral") return "MistralForCausalLM";
  if (type == "qwen2") return "Qwen2ForCausalLM";
  if (type == "qwen3") return "Qwen3ForCausalLM";
  fields.at("model_type");  // missing: say so
  fields.unsupported("model_type", kAdvice);
}

// Features that change results and that this engine does not have.
void refuse_unsupported(const Fields& fields, const ModelConfig& config) {
  if (fields.text("hidden_act", "silu") != "silu") {
    fields.unsupported("hidden_act", "only \"silu\" is");
  }
  if (fields.has("quantization_config")) {
    fields.unsupported("quantization_config", "use the unquantized checkpoint (F32, F16 or BF16)");
  }
  if (fields.positive("partial_rotary_factor", 1.0) != 1.0) {
    fields.unsupported("partial_rotary_factor", "only full rotation (1.0) is");
  }
  const bool qwen = config.architecture.starts_with("Qwen");
  const bool windowed = qwen ? fields.flag("use_sliding_window", false) : true;
  if (windowed && fields.has("sliding_window") &&
      fields.count("sliding_window") < config.max_positions) {
    fields.unsupported("sliding_window",
                       "use a model with full attention, or lower \"max_position_embeddings\" to "
                       "the window so that it never takes effect");
  }
  if (!fields.has("layer_types")) return;
  for (const json& type : fields.at("layer_types")) {
    if (type != "full_attention") {
      fields.unsupported("layer_types", "only \"full_attention\" layers are");
    }
  }
}

RopeScaling read_scaling(const Fields& fields, const char* name) {
  const Fields rope = fields.object(name);
  const char* kind_field = rope.has("rope_type") ? "rope_type" : "type";
  const std::string kind = rope.text(kind_field, "default");
  RopeScaling scaling;
  if (kind == "default") return scaling;
  if (kind != "linear" && kind != "llama3") {
    rope.unsupported(kind_field,
                     "only \"default\", \"linear\" and \"llama3\" are; a model whose "
                     "scaling is optional can be used without this field");
  }
  scaling.factor = rope.positive("factor");
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    return scaling;
  }
  scaling.kind = RopeScaling::Kind::llama3;
  scaling.low_freq_factor = rope.positive("low_freq_factor");
  scaling.high_freq_factor = rope.positive("high_freq_factor");
  scaling.original_max_positions = rope.count("original_max_position_embeddings");
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.bad("high_freq_factor", "larger than \"low_freq_factor\"");
  }
  return scaling;
}

// Older files have rope_theta and rope_scaling at the top, newer ones both in rope_parameters.
void read_rope(const Fields& fields, ModelConfig& config) {
  config.rope_theta = fields.positive("rope_theta", 10000.0);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(name)) continue;
    config.rope_theta = fields.object(name).positive("rope_theta", config.rope_theta);
    config.rope_scaling = read_scaling(fields, name);
  }
}

void read_shape(const Fields& fields, ModelConfig& config) {
  config.hidden_size = fields.count("hidden_size");
  config.intermediate_size = fields.count("intermediate_size");
  config.layers = fields.count("num_hidden_layers");
  config.heads = fields.count("num_attention_heads");
  config.kv_heads = fields.count("num_key_value_heads", config.heads);
  if (config.heads % config.kv_heads != 0) {
    fields.bad("num_key_value_heads", "a divisor of \"num_attention_heads\"");
  }
  if (!fields.has("head_dim") && config.hidden_size % config.heads != 0) {
    fields.bad("num_attention_heads", "a divisor of \"hidden_size\" where \"head_dim\" is absent");
  }
  config.head_dim = fields.count("head_dim", config.hidden_size / config.heads);
  if (config.head_dim % 2 != 0 || config.head_dim > 512) {
    fields.has("head_dim") ? fields.bad("head_dim", "even and at most 512")
                           : fields.bad("hidden_size", "an even multiple of the heads, up to 512");
  }
  config.vocab_size = fields.count("vocab_size");
  config.max_positions = fields.count("max_position_embeddings");
}

void read_biases(const Fields& fields, ModelConfig& config) {
  const bool attention_bias = fields.flag("attention_bias", false);
  const bool qwen2 = config.architecture == "Qwen2ForCausalLM";
  config.qkv_bias = qwen2 || attention_bias;      // Qwen2 always has it, without saying so
  config.output_bias = !qwen2 && attention_bias;  // and never here
  config.mlp_bias = fields.flag("mlp_bias", false);
  config.qk_norm = config.architecture == "Qwen3ForCausalLM";
}

void add_stop_tokens(std::vector<std::uint32_t>& tokens, const std::vector<std::uint32_t>& more) {
  for (const std::uint32_t id : more) {
    if (std::find(tokens.begin(), tokens.end(), id) == tokens.end()) tokens.push_back(id);
  }
}

// Appends a name and a value so that no two lists of fields have the same bytes.
class TaggedBytes {
 public:
  void add(std::string_view name, std::uint64_t value) {
    bytes_ += fmt::format("{}:{}={:016x};", name.size(), name, value);
  }
  void add(std::string_view name, double value) { add(name, std::bit_cast<std::uint64_t>(value)); }
  Digest digest() const { return sha256(std::as_bytes(std::span(bytes_))); }

 private:
  std::string bytes_;
};

}  // namespace

Digest ModelConfig::attention_digest() const {
  TaggedBytes fields;
  fields.add("terrace-engine attention", std::uint64_t{1});  // version of this list
  fields.add("hidden_size", std::uint64_t{hidden_size});
  fields.add("layers", std::uint64_t{layers});
  fields.add("heads", std::uint64_t{heads});
  fields.add("kv_heads", std::uint64_t{kv_heads});
  fields.add("head_dim", std::uint64_t{head_dim});
  fields.add("rms_norm_eps", static_cast<double>(rms_norm_eps));
  fields.add("qk_norm", std::uint64_t{qk_norm});
  fields.add("rope_theta", rope_theta);
  fields.add("rope_kind", static_cast<std::uint64_t>(rope_scaling.kind));
  if (rope_scaling.kind != RopeScaling::Kind::none) fields.add("rope_factor", rope_scaling.factor);
  if (rope_scaling.kind == RopeScaling::Kind::llama3) {
    fields.add("rope_low", rope_scaling.low_freq_factor);
    fields.add("rope_high", rope_scaling.high_freq_factor);
    fields.add("rope_original", std::uint64_t{rope_scaling.original_max_positions});
  }
  return fields.digest();
}

ModelConfig read_config(const std::filesystem::path& directory) {
  const auto file = directory / "config.json";
  const json object = read_json(file);
  const Fields fields(object, file.string());
  ModelConfig config;
  config.architecture = architecture_of(fields);
  read_shape(fields, config);
  config.rms_norm_eps = static_cast<float>(fields.positive("rms_norm_eps", 1e-6));
  read_rope(fields, config);
  read_biases(fields, config);
  config.tied_embeddings = fields.flag("tie_word_embeddings", false);
  refuse_unsupported(fields, config);

  const auto bos = fields.token_ids("bos_token_id");
  if (!bos.empty()) config.bos_token = bos.front();
  add_stop_tokens(config.eos_tokens, fields.token_ids("eos_token_id"));
  const auto generation = directory / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    const json more = read_json(generation);
    add_stop_tokens(config.eos_tokens, Fields(more, generation.string()).token_ids("eos_token_id"));
  }
  return config;
}

}  // namespace terrace::engine
