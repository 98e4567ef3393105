// Where weights come from: a checkpoint's files or a generator, behind one interface.
//
// A source hands out stored bytes and never converts them: the weights digest is over exactly
// these. Called by the weights loader and the weights digest.
// Thread rule: const use from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dtype.hpp"

namespace terrace::engine {

// What a long step has done so far. Called from any one of the loader's threads, never from two at
// once.
using Progress =
    std::function<void(std::string_view step, std::uint64_t bytes_done, std::uint64_t bytes_total)>;

struct TensorInfo {
  std::string name;
  std::string dtype;                 // safetensors spelling: "F32", "BF16", ...
  std::vector<std::uint64_t> shape;  // outermost first; empty is one element
  std::uint64_t index = 0;           // the source's own number for it

  std::uint64_t elements() const noexcept {
    return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
  }
  std::uint64_t bytes() const noexcept { return elements() * dtype_bytes(dtype); }
};

class TensorSource {
 public:
  TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;
  virtual ~TensorSource() = default;

  // Sorted by name; lives as long as the source.
  virtual std::span<const TensorInfo> tensors() const = 0;

  // The stored bytes of elements [first, first + count) of `tensor`, which is one of tensors().
  // Returns: a view into the source or into `scratch`; valid while both live and scratch is
  // unchanged.
  virtual std::span<const std::byte> read(const TensorInfo& tensor, std::uint64_t first,
                                          std::uint64_t count,
                                          std::vector<std::byte>& scratch) const = 0;

  // How messages call this source: a directory, or the name of a built-in model.
  virtual std::string name() const = 0;

  // Returns: the tensor, or null where there is none of that name.
  const TensorInfo* find(std::string_view tensor_name) const;
};

}  // namespace terrace::engine
