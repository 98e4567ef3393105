#include "engine/linear.hpp"

#include <cstring>
#include <numeric>

namespace terrace::engine {
namespace {

using dnnl::memory;

constexpr auto kF32 = memory::data_type::f32;
constexpr auto kRowMajor = memory::format_tag::ab;
constexpr std::size_t kLineBytes = 64;
constexpr memory::dim kTypicalRows = 512;  // for which the library chooses its order of the weights

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);  // a stateless handle
  return engine;
}

memory::desc plain(memory::dim rows, memory::dim columns) {
  return {{rows, columns}, kF32, kRowMajor};
}

memory::desc packed_order(memory::dim inputs, memory::dim count) {
  const memory::desc any({inputs, count}, kF32, memory::format_tag::any);
  const dnnl::matmul::desc product(plain(kTypicalRows, inputs), any, plain(kTypicalRows, count));
  return dnnl::matmul::primitive_desc(product, cpu()).weights_desc();
}

std::size_t padded(std::size_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

}  // namespace

Linear::Linear(std::uint32_t inputs, std::span<const std::uint32_t> slice_counts, bool has_bias)
    : inputs_(inputs), has_bias_(has_bias) {
  std::vector<memory::desc> orders;
  std::size_t bytes = 0;
  for (const std::uint32_t count : slice_counts) {
    orders.push_back(packed_order(inputs, count));
    bytes += padded(orders.back().get_size()) + (has_bias ? padded(count * sizeof(float)) : 0);
  }
  memory_ = PageBuffer(bytes);
  std::byte* place = memory_.data();
  for (std::size_t i = 0; i < slice_counts.size(); ++i) {
    Slice& slice = slices_.emplace_back();
    slice.first = outputs_;
    slice.count = slice_counts[i];
    slice.weights = memory(orders[i], cpu(), place);
    place += padded(orders[i].get_size());
    outputs_ += slice.count;
    if (!has_bias) continue;
    slice.bias = memory(plain(1, slice.count), cpu(), place);
    place += padded(slice.count * sizeof(float));
  }
}

void Linear::pack(std::uint32_t slice, std::span<float> rows, std::span<const float> bias) {
  const Slice& target = slices_[slice];
  // Rows of W are columns of the product's right side: the same bytes, read as the transpose.
  const memory::desc transposed({inputs_, target.count}, kF32, memory::format_tag::ba);
  memory source(transposed, cpu(), rows.data());
  memory weights = target.weights;
  dnnl::stream stream(cpu());
  dnnl::reorder(source, weights).execute(stream, source, weights);
  stream.wait();
  if (has_bias_) {
    std::memcpy(target.bias.get_data_handle(), bias.data(), bias.size_bytes());
  }
}

Multiplier::Multiplier(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) threads_.push_back({dnnl::stream(cpu()), {}, {}});
}

void Multiplier::prepare(const Linear& linear, std::uint32_t rows) {
  for (const Linear::Slice& slice : linear.slices()) {
    const Shape shape{linear.inputs(), slice.count, linear.has_bias()};
    Kernel& kernel = kernels_[shape];
    if (kernel.rows != rows) compile(kernel, shape, slice, rows);
  }
}

void Multiplier::compile(Kernel& kernel, const Shape& shape, const Linear::Slice& slice,
                         std::uint32_t rows) {
  kernel.source = plain(rows, shape.inputs);
  kernel.target = plain(rows, shape.count);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc weights = slice.weights.get_desc();
  const auto product = shape.has_bias ? dnnl::matmul::desc(kernel.source, weights,
                                                           plain(1, shape.count), kernel.target)
                                      : dnnl::matmul::desc(kernel.source, weights, kernel.target);
  const dnnl::matmul::primitive_desc compiled(product, attributes, cpu());
  kernel.matmul = dnnl::matmul(compiled);
  kernel.scratch = compiled.scratchpad_desc();
  kernel.name = compiled.impl_info_str();
  kernel.rows = rows;
  const auto grow = [](PageBuffer& buffer, std::size_t bytes) {
    if (buffer.size() < bytes) buffer = PageBuffer(bytes);
  };
  for (Thread& thread : threads_) {
    grow(thread.result, kernel.target.get_size());
    grow(thread.scratch, kernel.scratch.get_size());
  }
}

const Multiplier::Kernel& Multiplier::kernel_of(const Linear& linear,
                                                const Linear::Slice& slice) const {
  return kernels_.find({linear.inputs(), slice.count, linear.has_bias()})->second;
}

const float* Multiplier::multiply(const Linear& linear, std::uint32_t slice, const float* x,
                                  unsigned thread) {
  const Linear::Slice& right = linear.slices()[slice];
  const Kernel& kernel = kernel_of(linear, right);
  Thread& own = threads_[thread];
  std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, memory(kernel.source, cpu(), const_cast<float*>(x))},
      {DNNL_ARG_WEIGHTS, right.weights},
      {DNNL_ARG_DST, memory(kernel.target, cpu(), own.result.data())},
      {DNNL_ARG_SCRATCHPAD, memory(kernel.scratch, cpu(), own.scratch.data())}};
  if (linear.has_bias()) arguments.emplace(DNNL_ARG_BIAS, right.bias);
  kernel.matmul.execute(own.stream, arguments);
  own.stream.wait();
  return own.result.floats().data();
}

std::string Multiplier::kernel_name(const Linear& linear) const {
  return kernel_of(linear, linear.slices().front()).name;
}

}  // namespace terrace::engine
