// How fast the reference engine computes a prompt, against the matrix library's own time for the
// same products.
//
//   prefill_bench [--model SPEC] [--tokens N] [--decode N] [--repeats N] [--threads N] [--chunk N]
//   [--block-tokens N]
//                 [--json FILE]
//
// The limit is what oneDNN takes for nothing but the matrix products of the prompt, on its own
// threads, with weights in its own packed order, one product a matrix or fused as the engine does,
// whichever is faster. Engine and limit are measured in turns in one run, because a shared machine
// drifts; the ratio is the median of the paired ratios.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <dnnl.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/forward.hpp"
#include "engine/kernels.hpp"
#include "engine/model.hpp"
#include "engine/sampler.hpp"
#include "measure.hpp"

extern "C" void omp_set_num_threads(int threads);

namespace {

using terrace::bench::median;
using terrace::engine::Forward;
using terrace::engine::LoadedModel;
using terrace::engine::ModelConfig;
using terrace::engine::PagedKv;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string model = "builtin:small";
  std::uint32_t tokens = 4096;
  std::uint32_t decode = 32;
  std::uint32_t repeats = 5;
  std::uint32_t threads = std::max(1U, std::thread::hardware_concurrency());
  std::uint32_t chunk = 512;
  std::uint32_t block_tokens = 16;
  std::string json;
};

template <class Work>
double seconds_of(Work&& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One product of the limit: x [rows][inputs] times packed weights [inputs][outputs].
class Product {
 public:
  Product(const dnnl::engine& cpu, dnnl::memory::dim rows, dnnl::memory::dim inputs,
          dnnl::memory::dim outputs, float* x, float* y) {
    using dnnl::memory;
    constexpr auto kF32 = memory::data_type::f32;
    const memory::desc source({rows, inputs}, kF32, memory::format_tag::ab);
    const memory::desc any({inputs, outputs}, kF32, memory::format_tag::any);
    const memory::desc target({rows, outputs}, kF32, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(source, any, target), cpu);
    matmul_ = dnnl::matmul(chosen);
    weights_ = memory(chosen.weights_desc(), cpu);
    auto* values = static_cast<float*>(weights_.get_data_handle());
    std::fill_n(values, weights_.get_desc().get_size() / sizeof(float), 0.01F);
    x_ = memory(source, cpu, x);
    y_ = memory(target, cpu, y);
  }
  void run(dnnl::stream& stream) {
    matmul_.execute(stream, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, weights_}, {DNNL_ARG_DST, y_}});
    stream.wait();
  }

 private:
  dnnl::matmul matmul_;
  dnnl::memory weights_, x_, y_;
};

// All products of one chunk; the weights of different layers are different memory, as in the
// engine.
class Limit {
 public:
  Limit(const ModelConfig& config, std::uint32_t rows, bool fused) : stream_(cpu_) {
    const auto widest = std::max(
        {config.hidden_size, config.qkv_size(), config.query_size(), 2 * config.intermediate_size});
    x_.assign(std::size_t{rows} * widest, 0.5F);
    y_.assign(std::size_t{rows} * widest, 0.0F);
    const auto add = [&](std::uint32_t inputs, std::initializer_list<std::uint32_t> parts) {
      std::uint32_t all = 0;
      for (const std::uint32_t outputs : parts) {
        all += outputs;
        if (!fused) products_.emplace_back(cpu_, rows, inputs, outputs, x_.data(), y_.data());
      }
      if (fused) products_.emplace_back(cpu_, rows, inputs, all, x_.data(), y_.data());
    };
    for (std::uint32_t layer = 0; layer < config.layers; ++layer) {
      add(config.hidden_size, {config.query_size(), config.kv_size(), config.kv_size()});
      add(config.query_size(), {config.hidden_size});
      add(config.hidden_size, {config.intermediate_size, config.intermediate_size});
      add(config.intermediate_size, {config.hidden_size});
    }
  }
  void run() {
    for (Product& product : products_) product.run(stream_);
  }

 private:
  dnnl::engine cpu_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_;
  std::vector<float> x_, y_;
  std::vector<Product> products_;
};

class Blocks {
 public:
  Blocks(const ModelConfig& config, std::uint32_t tokens, std::uint32_t block_tokens)
      : block_tokens_(block_tokens) {
    const std::size_t bytes = terrace::engine::block_bytes(config, block_tokens);
    const std::size_t count = (tokens + block_tokens - 1) / block_tokens;
    memory_.resize(bytes * count);
    for (std::size_t i = 0; i < count; ++i) table_.push_back(memory_.data() + i * bytes);
  }
  PagedKv kv() const { return {table_, block_tokens_}; }

 private:
  std::uint32_t block_tokens_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> table_;
};

struct Figures {
  std::vector<double> prefill_s, limit_s, decode_s, ratio;
};

Figures measure(const LoadedModel& model, const Options& options) {
  const ModelConfig& config = model.config();
  Forward forward(model.weights, {options.threads, options.chunk});
  const Blocks blocks(config, options.tokens + options.decode, options.block_tokens);
  std::vector<std::uint32_t> prompt(options.tokens);
  for (std::uint32_t i = 0; i < options.tokens; ++i) prompt[i] = (i * 31 + i / 7) % 256;
  omp_set_num_threads(static_cast<int>(options.threads));
  const std::uint32_t rows = std::min(options.chunk, options.tokens);
  Limit apart(config, rows, false);
  Limit fused(config, rows, true);
  const auto limit = [&](Limit& of) {
    return seconds_of([&] {
      for (std::uint32_t done = 0; done < options.tokens; done += rows) of.run();
    });
  };
  Figures figures;
  for (std::uint32_t repeat = 0; repeat <= options.repeats; ++repeat) {
    std::span<const float> logits;
    const double limit_s = std::min(limit(apart), limit(fused));
    const double prefill_s = seconds_of([&] { logits = forward.run(prompt, 0, blocks.kv()); });
    const double decode_s = seconds_of([&] {
      for (std::uint32_t i = 0; i < options.decode; ++i) {
        const std::uint32_t next = terrace::engine::argmax(logits);
        logits = forward.run({&next, 1}, options.tokens + i, blocks.kv());
      }
    });
    if (repeat == 0) continue;  // warm-up: page faults and compiled kernels
    figures.limit_s.push_back(limit_s);
    figures.prefill_s.push_back(prefill_s);
    figures.decode_s.push_back(decode_s);
    figures.ratio.push_back(prefill_s / limit_s);
  }
  return figures;
}

nlohmann::json report(const Options& options, const ModelConfig& config, const Figures& figures) {
  const double products =
      2.0 * options.tokens * config.layers * config.hidden_size *
      (config.qkv_size() + config.query_size() + 3.0 * config.intermediate_size);
  const double prefill_s = median(figures.prefill_s);
  const double limit_s = median(figures.limit_s);
  return {{"model", options.model},
          {"tokens", options.tokens},
          {"threads", options.threads},
          {"chunk_tokens", options.chunk},
          {"block_tokens", options.block_tokens},
          {"kernels", terrace::engine::best_kernels().name},
          {"prefill_s", prefill_s},
          {"prefill_tokens_per_s", options.tokens / prefill_s},
          {"gemm_only_s", limit_s},
          {"gemm_only_gflops", products / limit_s / 1e9},
          {"ratio", median(figures.ratio)},
          {"ratio_worst", *std::max_element(figures.ratio.begin(), figures.ratio.end())},
          {"decode_tokens_per_s", options.decode / median(figures.decode_s)}};
}

void print(const nlohmann::json& result) {
  fmt::print("{} tokens of {}, {} threads, {} kernels, chunks of {}, blocks of {} tokens\n",
             result["tokens"].get<int>(), result["model"].get<std::string>(),
             result["threads"].get<int>(), result["kernels"].get<std::string>(),
             result["chunk_tokens"].get<int>(), result["block_tokens"].get<int>());
  fmt::print("  prefill           {:8.3f} s   {:8.0f} tokens/s\n",
             result["prefill_s"].get<double>(), result["prefill_tokens_per_s"].get<double>());
  fmt::print("  oneDNN GEMM only  {:8.3f} s   {:8.0f} GFLOP/s\n",
             result["gemm_only_s"].get<double>(), result["gemm_only_gflops"].get<double>());
  fmt::print("  ratio             {:8.2f}     (worst pair {:.2f}; the bar is 2)\n",
             result["ratio"].get<double>(), result["ratio_worst"].get<double>());
  fmt::print("  decode                         {:8.1f} tokens/s\n",
             result["decode_tokens_per_s"].get<double>());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Prefill speed of the reference engine against the matrix library's own time"};
  app.add_option("--model", options.model, "builtin:small, builtin:tiny or a directory");
  app.add_option("--tokens", options.tokens, "Length of the prompt")->check(CLI::PositiveNumber);
  app.add_option("--decode", options.decode, "Tokens to decode")->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats, "Pairs measured")->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "Of both sides")->check(CLI::PositiveNumber);
  app.add_option("--chunk", options.chunk, "Tokens a chunk")->check(CLI::PositiveNumber);
  app.add_option("--block-tokens", options.block_tokens, "Tokens a block")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Also write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    const LoadedModel model = terrace::engine::load_model(options.model, {options.threads, {}, {}});
    const auto result = report(options, model.config(), measure(model, options));
    print(result);
    if (!options.json.empty() && !(std::ofstream(options.json) << result.dump(2) << '\n')) {
      throw std::runtime_error("cannot write " + options.json);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "prefill_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
