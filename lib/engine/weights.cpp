#include "engine/weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <mutex>

#include "engine/tokenizer/load_error.hpp"

namespace terrace::engine {
namespace {

// Columns a slice has. Wide enough for the matrix library's kernels to reach their full speed
// (measured: 64 is 20 % slower), narrow enough that the slices of a 1,024-wide layer can be shared
// by four threads.
constexpr std::uint32_t kSliceColumns = 256;

// Rows [first, first + count) of one matrix.
struct RowRange {
  const TensorInfo* matrix = nullptr;
  const TensorInfo* bias = nullptr;  // [rows of matrix], or null
  std::uint64_t first = 0;
  std::uint32_t count = 0;
};

// One slice to pack: its rows are those of `ranges`, one after the other.
struct PackJob {
  Linear* target = nullptr;
  std::uint32_t slice = 0;
  std::vector<RowRange> ranges;
};

std::vector<std::uint32_t> cut(std::uint32_t outputs, std::uint32_t columns) {
  std::vector<std::uint32_t> counts;
  for (std::uint32_t first = 0; first < outputs; first += columns) {
    counts.push_back(std::min(columns, outputs - first));
  }
  return counts;
}

class Builder {
 public:
  Builder(const ModelConfig& config, const TensorSource& source) : source_(source) {
    weights_.config = config;
  }

  Weights build(ThreadTeam& team, const Progress& progress) {
    plan();
    pack(team, progress);
    return std::move(weights_);
  }

 private:
  const TensorInfo& tensor(const std::string& name, std::vector<std::uint64_t> shape) const {
    const TensorInfo* info = source_.find(name);
    if (info == nullptr) {
      throw LoadError(fmt::format(
          "{}: tensor \"{}\" is missing, which config.json asks for; the checkpoint is incomplete "
          "or belongs to another config.json",
          source_.name(), name));
    }
    if (info->shape != shape) {
      throw LoadError(fmt::format(
          "{}: tensor \"{}\" has the shape [{}], config.json asks for [{}]; one of the two belongs "
          "to another model",
          source_.name(), name, fmt::join(info->shape, ", "), fmt::join(shape, ", ")));
    }
    if (!float_type(info->dtype)) {
      throw LoadError(
          fmt::format("{}: tensor \"{}\" has the dtype {}; use a checkpoint in F32, F16 or BF16",
                      source_.name(), name, info->dtype));
    }
    return *info;
  }

  std::vector<float> floats(const TensorInfo& info, std::uint64_t first,
                            std::uint64_t count) const {
    std::vector<float> values(count);
    read(info, first, values);
    return values;
  }
  std::vector<float> vector(const std::string& name, std::uint64_t size) const {
    return floats(tensor(name, {size}), 0, size);
  }
  void read(const TensorInfo& info, std::uint64_t first, std::span<float> to) const {
    std::vector<std::byte> scratch;
    convert_to_f32(*float_type(info.dtype), source_.read(info, first, to.size(), scratch), to);
  }

  // All rows of <name>.weight, with <name>.bias where the configuration has one.
  RowRange matrix(const std::string& name, std::uint32_t rows, std::uint32_t columns,
                  bool has_bias) const {
    const TensorInfo* bias = has_bias ? &tensor(name + ".bias", {rows}) : nullptr;
    return {&tensor(name + ".weight", {rows, columns}), bias, 0, rows};
  }

  // `parts` under each other as one layer, cut into slices.
  Linear stack(const std::vector<RowRange>& parts, std::uint32_t inputs, Linear* place);
  // Gate and up side by side: see LayerWeights::gate_up.
  Linear pair(const RowRange& gate, const RowRange& up, std::uint32_t inputs, Linear* place);

  void plan();
  void plan_layer(std::uint32_t layer);
  void plan_embedding();
  void pack(ThreadTeam& team, const Progress& progress);
  void pack_slice(const PackJob& job) const;

  const TensorSource& source_;
  Weights weights_;
  std::vector<PackJob> jobs_;
};

RowRange part_of(const RowRange& whole, std::uint32_t first, std::uint32_t count) {
  return {whole.matrix, whole.bias, whole.first + first, count};
}

// The rows [first, first + count) of `parts` under each other.
std::vector<RowRange> rows_of(const std::vector<RowRange>& parts, std::uint32_t first,
                              std::uint32_t count) {
  std::vector<RowRange> ranges;
  for (const RowRange& part : parts) {
    if (first < part.count && count > 0) {
      const std::uint32_t taken = std::min(count, part.count - first);
      ranges.push_back(part_of(part, first, taken));
      count -= taken;
      first = 0;
    } else {
      first -= part.count;
    }
  }
  return ranges;
}

Linear Builder::stack(const std::vector<RowRange>& parts, std::uint32_t inputs, Linear* place) {
  std::uint32_t outputs = 0;
  for (const RowRange& part : parts) outputs += part.count;
  // A vocabulary has hundreds of thousands of rows: wider slices keep the number of calls down.
  const auto counts =
      cut(outputs, outputs > 64 * kSliceColumns ? 4 * kSliceColumns : kSliceColumns);
  std::uint32_t first = 0;
  for (std::uint32_t slice = 0; slice < counts.size(); ++slice) {
    jobs_.push_back({place, slice, rows_of(parts, first, counts[slice])});
    first += counts[slice];
  }
  return {inputs, counts, parts.front().bias != nullptr};
}

Linear Builder::pair(const RowRange& gate, const RowRange& up, std::uint32_t inputs,
                     Linear* place) {
  auto counts = cut(gate.count, kSliceColumns / 2);
  std::uint32_t first = 0;
  for (std::uint32_t slice = 0; slice < counts.size(); ++slice) {
    jobs_.push_back(
        {place, slice, {part_of(gate, first, counts[slice]), part_of(up, first, counts[slice])}});
    first += counts[slice];
    counts[slice] *= 2;
  }
  return {inputs, counts, gate.bias != nullptr};
}

void Builder::plan() {
  const ModelConfig& config = weights_.config;
  plan_embedding();
  weights_.layers.resize(config.layers);  // never again: jobs point into it
  for (std::uint32_t layer = 0; layer < config.layers; ++layer) plan_layer(layer);
  weights_.final_norm = vector("model.norm.weight", config.hidden_size);
  const std::string head = config.tied_embeddings ? "model.embed_tokens" : "lm_head";
  weights_.logits = stack({matrix(head, config.vocab_size, config.hidden_size, false)},
                          config.hidden_size, &weights_.logits);
}

void Builder::plan_embedding() {
  const ModelConfig& config = weights_.config;
  const TensorInfo& table =
      tensor("model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
  std::vector<std::byte> scratch;
  const auto bytes = source_.read(table, 0, table.elements(), scratch);
  weights_.embedding.type = *float_type(table.dtype);
  weights_.embedding.rows.assign(bytes.begin(), bytes.end());
}

void Builder::plan_layer(std::uint32_t layer) {
  const ModelConfig& config = weights_.config;
  LayerWeights& to = weights_.layers[layer];
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string attention = prefix + "self_attn.";
  const std::uint32_t hidden = config.hidden_size;

  to.attention_norm = vector(prefix + "input_layernorm.weight", hidden);
  to.qkv = stack({matrix(attention + "q_proj", config.query_size(), hidden, config.qkv_bias),
                  matrix(attention + "k_proj", config.kv_size(), hidden, config.qkv_bias),
                  matrix(attention + "v_proj", config.kv_size(), hidden, config.qkv_bias)},
                 hidden, &to.qkv);
  if (config.qk_norm) {
    to.q_norm = vector(attention + "q_norm.weight", config.head_dim);
    to.k_norm = vector(attention + "k_norm.weight", config.head_dim);
  }
  to.output = stack({matrix(attention + "o_proj", hidden, config.query_size(), config.output_bias)},
                    config.query_size(), &to.output);
  to.mlp_norm = vector(prefix + "post_attention_layernorm.weight", hidden);
  const std::uint32_t inner = config.intermediate_size;
  to.gate_up =
      pair(matrix(prefix + "mlp.gate_proj", inner, hidden, config.mlp_bias),
           matrix(prefix + "mlp.up_proj", inner, hidden, config.mlp_bias), hidden, &to.gate_up);
  to.down =
      stack({matrix(prefix + "mlp.down_proj", hidden, inner, config.mlp_bias)}, inner, &to.down);
}

void Builder::pack(ThreadTeam& team, const Progress& progress) {
  std::uint64_t total = 0;
  for (const PackJob& job : jobs_) {
    for (const RowRange& range : job.ranges)
      total += std::uint64_t{range.count} * job.target->inputs();
  }
  std::uint64_t done = 0;
  std::mutex mutex;
  const SingleThreadedLibrary single;
  team.for_each(static_cast<std::uint32_t>(jobs_.size()), [&](std::uint32_t index, unsigned) {
    const PackJob& job = jobs_[index];
    pack_slice(job);
    const std::lock_guard lock(mutex);
    done += std::uint64_t{job.target->slices()[job.slice].count} * job.target->inputs();
    if (progress) progress("loading weights", done * sizeof(float), total * sizeof(float));
  });
}

void Builder::pack_slice(const PackJob& job) const {
  const std::uint64_t inputs = job.target->inputs();
  std::vector<float> rows;
  std::vector<float> bias;
  for (const RowRange& range : job.ranges) {
    const std::size_t before = rows.size();
    rows.resize(before + range.count * inputs);
    read(*range.matrix, range.first * inputs, std::span(rows).subspan(before));
    if (range.bias == nullptr) continue;
    const auto part = floats(*range.bias, range.first, range.count);
    bias.insert(bias.end(), part.begin(), part.end());
  }
  job.target->pack(job.slice, rows, bias);
}

void add_matrix(std::vector<TensorSpec>& specs, const std::string& name, std::uint64_t rows,
                std::uint64_t columns, bool bias) {
  specs.push_back({name + ".weight", {rows, columns}});
  if (bias) specs.push_back({name + ".bias", {rows}});
}

}  // namespace

std::vector<TensorSpec> required_tensors(const ModelConfig& config) {
  const std::uint64_t hidden = config.hidden_size;
  std::vector<TensorSpec> specs{{"model.embed_tokens.weight", {config.vocab_size, hidden}}};
  for (std::uint32_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const std::string attention = prefix + "self_attn.";
    specs.push_back({prefix + "input_layernorm.weight", {hidden}});
    add_matrix(specs, attention + "q_proj", config.query_size(), hidden, config.qkv_bias);
    add_matrix(specs, attention + "k_proj", config.kv_size(), hidden, config.qkv_bias);
    add_matrix(specs, attention + "v_proj", config.kv_size(), hidden, config.qkv_bias);
    if (config.qk_norm) {
      specs.push_back({attention + "q_norm.weight", {config.head_dim}});
      specs.push_back({attention + "k_norm.weight", {config.head_dim}});
    }
    add_matrix(specs, attention + "o_proj", hidden, config.query_size(), config.output_bias);
    specs.push_back({prefix + "post_attention_layernorm.weight", {hidden}});
    add_matrix(specs, prefix + "mlp.gate_proj", config.intermediate_size, hidden, config.mlp_bias);
    add_matrix(specs, prefix + "mlp.up_proj", config.intermediate_size, hidden, config.mlp_bias);
    add_matrix(specs, prefix + "mlp.down_proj", hidden, config.intermediate_size, config.mlp_bias);
  }
  specs.push_back({"model.norm.weight", {hidden}});
  if (!config.tied_embeddings) specs.push_back({"lm_head.weight", {config.vocab_size, hidden}});
  return specs;
}

Weights build_weights(const ModelConfig& config, const TensorSource& source, ThreadTeam& team,
                      const Progress& progress) {
  return Builder(config, source).build(team, progress);
}

}  // namespace terrace::engine
