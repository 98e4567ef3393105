// A linear layer y = x W^T + b with its weights in the matrix library's own order, and its
// execution.
//
// The outputs are cut into slices of some hundred columns. A slice is packed, and computed, by one
// thread: the threads read disjoint weights for one token as for five hundred, and whatever follows
// element by element (an activation) can follow on the same thread while the slice is in its cache.
// Called by the weights loader (pack) and the forward pass (multiply).
// Thread rule: pack different slices and multiply from any thread; prepare() from one thread while
// nothing is multiplied.
#pragma once

#include <dnnl.hpp>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/page_buffer.hpp"

namespace terrace::engine {

class Linear {
 public:
  struct Slice {
    std::uint32_t first = 0;  // first output column
    std::uint32_t count = 0;
    dnnl::memory weights;  // [inputs][count], packed
    dnnl::memory bias;     // [count], or empty
  };

  Linear() = default;
  // Reserves packed memory of `inputs` x sum(slice_counts) weights.
  Linear(std::uint32_t inputs, std::span<const std::uint32_t> slice_counts, bool has_bias);

  std::uint32_t inputs() const noexcept { return inputs_; }
  std::uint32_t outputs() const noexcept { return outputs_; }
  bool has_bias() const noexcept { return has_bias_; }
  std::span<const Slice> slices() const noexcept { return slices_; }

  // Packs slice `slice` from plain `rows` [count][inputs] and `bias` [count] or empty.
  void pack(std::uint32_t slice, std::span<float> rows, std::span<const float> bias);

 private:
  std::uint32_t inputs_ = 0;
  std::uint32_t outputs_ = 0;
  bool has_bias_ = false;
  PageBuffer memory_;
  std::vector<Slice> slices_;
};

// Products of the shapes that one forward pass uses. Keeps the library's compiled kernel of each
// shape for the latest number of rows; the library itself remembers the earlier ones.
class Multiplier {
 public:
  explicit Multiplier(unsigned threads);

  // Makes the products of `linear` over `rows` rows ready. Thread rule: while nothing is
  // multiplied.
  void prepare(const Linear& linear, std::uint32_t rows);

  // x * slice + bias, for the rows that were prepared last. x is [rows][inputs], dense.
  // Returns: [rows][slice's count], dense, in memory of `thread`, valid until its next product.
  // (Written elsewhere with a stride, the library has no fast kernel for it; and here it is still
  // in the core's cache for what comes next.)
  const float* multiply(const Linear& linear, std::uint32_t slice, const float* x, unsigned thread);

  // The library's name for the kernel that computes the first slice of `linear`, which must be
  // prepared.
  std::string kernel_name(const Linear& linear) const;

 private:
  struct Shape {
    std::uint32_t inputs, count;
    bool has_bias;
    auto operator<=>(const Shape&) const = default;
  };
  struct Kernel {
    std::uint32_t rows = 0;
    dnnl::matmul matmul;
    dnnl::memory::desc source, target, scratch;
    std::string name;
  };
  struct Thread {
    dnnl::stream stream;
    PageBuffer result;
    PageBuffer scratch;
  };

  void compile(Kernel& kernel, const Shape& shape, const Linear::Slice& slice, std::uint32_t rows);
  const Kernel& kernel_of(const Linear& linear, const Linear::Slice& slice) const;

  std::map<Shape, Kernel> kernels_;
  std::vector<Thread> threads_;
};

}  // namespace terrace::engine
