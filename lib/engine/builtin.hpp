// Models without files: random but deterministic weights, for machines that have no checkpoint.
//
// Every weight is a pure function of (seed, tensor name, index) in exact integer and one-rounding
// float arithmetic: the same bits on every machine, whatever its math library. They speak the byte
// tokenizer's ids: 0 to 255 are bytes, 256 begins and 257 ends a text. What they answer is
// nonsense, but never the same token for ever. Called by load_model().
// Thread rule: const use from any thread.
#pragma once

#include <string_view>

#include "engine/config.hpp"
#include "engine/tensor_source.hpp"

namespace terrace::engine {

enum class BuiltinSize : std::uint8_t {
  tiny,   // 0.2 M weights: answers at once
  small,  // 92 M weights: prefill of 4,096 tokens takes seconds on two cores
};

ModelConfig builtin_config(BuiltinSize size);

class BuiltinSource final : public TensorSource {
 public:
  explicit BuiltinSource(BuiltinSize size);

  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::span<const std::byte> read(const TensorInfo& tensor, std::uint64_t first,
                                  std::uint64_t count,
                                  std::vector<std::byte>& scratch) const override;
  std::string name() const override { return name_; }

 private:
  std::string name_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace terrace::engine
