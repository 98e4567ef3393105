// The weights of a model, ready to compute with: the data dictionary of everything the forward pass
// reads.
//
// Matrices are float32 in the matrix library's packed order; the rest is plain. Independent of the
// source once built. Called by load_model() (build) and the forward pass (read).
// Thread rule: const use from any thread.
#pragma once

#include <vector>

#include "engine/config.hpp"
#include "engine/linear.hpp"
#include "engine/tensor_source.hpp"
#include "engine/thread_team.hpp"

namespace terrace::engine {

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  Linear qkv;                   // [hidden] -> [heads + 2 kv_heads][head_dim]: q, then k, then v
  std::vector<float> q_norm;    // [head_dim], or empty
  std::vector<float> k_norm;    // [head_dim], or empty
  Linear output;                // [heads][head_dim] -> [hidden]
  std::vector<float> mlp_norm;  // [hidden]
  Linear gate_up;  // [hidden] -> pairs of slices: each slice is n columns of gate, then the same n
                   // of up
  Linear down;     // [intermediate] -> [hidden]
};

// One row a token id, kept in the checkpoint's own type: it is large and each token reads one row.
struct EmbeddingTable {
  FloatType type = FloatType::f32;
  std::vector<std::byte> rows;  // [vocab][hidden]
};

struct Weights {
  ModelConfig config;
  EmbeddingTable embedding;
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  Linear logits;                  // [hidden] -> [vocab]
};

// A tensor that a model of some configuration must have.
struct TensorSpec {
  std::string name;
  std::vector<std::uint64_t> shape;
};

// Every tensor that build_weights() reads, in the order of the layers, under its Hugging Face name.
std::vector<TensorSpec> required_tensors(const ModelConfig& config);

// Reads, converts and packs all weights, on all threads of `team`.
// Throws LoadError: a tensor is missing, has another shape than `config` says, or is not F32, F16
// or BF16.
Weights build_weights(const ModelConfig& config, const TensorSource& source, ThreadTeam& team,
                      const Progress& progress);

}  // namespace terrace::engine
