// What a Llama-architecture model is: the numbers of config.json, with their meaning.
//
// Reads Hugging Face configurations of the architectures llama, mistral, qwen2 and qwen3. Never
// guesses: whatever would change the results and is not implemented is a LoadError that names the
// file, the field and what to do. Called by load_model() and the built-in models.
// Thread rule: plain values and pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "terrace/identity.hpp"

namespace terrace::engine {

// How positions beyond the trained context are mapped to rotations.
struct RopeScaling {
  enum class Kind : std::uint8_t { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;            // linear and llama3: frequencies are divided by it
  double low_freq_factor = 1;   // llama3: below original_max_positions / this wavelength
  double high_freq_factor = 4;  // llama3: ... and above, frequencies are blended
  std::uint32_t original_max_positions = 8192;  // llama3: context of the training before scaling
};

// The data dictionary of a model. Shapes of weights and activations are products of these.
struct ModelConfig {
  std::string architecture = "LlamaForCausalLM";
  std::uint32_t hidden_size = 0;        // width of the residual stream
  std::uint32_t intermediate_size = 0;  // width of the MLP's gate and up projections
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;     // query heads
  std::uint32_t kv_heads = 0;  // key and value heads; heads / kv_heads query heads share one (GQA)
  std::uint32_t head_dim = 0;  // even; rotated by RoPE as two halves
  std::uint32_t vocab_size = 0;
  std::uint32_t max_positions = 0;  // longest context, prompt and answer together
  float rms_norm_eps = 1e-5F;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;  // the output matrix is the embedding table
  bool qkv_bias = false;         // q, k and v projections have a bias
  bool output_bias = false;      // so does the attention's output projection
  bool mlp_bias = false;         // so do gate, up and down
  bool qk_norm = false;          // RMSNorm over each query and key head before RoPE
  std::optional<std::uint32_t> bos_token;
  std::vector<std::uint32_t> eos_tokens;  // any of them ends an answer

  std::uint32_t query_size() const noexcept { return heads * head_dim; }
  std::uint32_t kv_size() const noexcept { return kv_heads * head_dim; }
  std::uint32_t qkv_size() const noexcept { return query_size() + 2 * kv_size(); }

  // SHA-256 over tagged fields of everything that decides, beside the weights, which K and V a
  // token gets.
  Digest attention_digest() const;
};

// Reads config.json and, where present, generation_config.json of `directory`.
// Throws LoadError: file unreadable or not JSON; field missing, of a wrong type or out of range;
// unsupported model.
ModelConfig read_config(const std::filesystem::path& directory);

}  // namespace terrace::engine
