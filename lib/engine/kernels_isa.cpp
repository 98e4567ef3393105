// The kernels of one instruction set: compiled several times, with other compiler flags and these
// macros:
//   TERRACE_ISA          namespace of this copy
//   TERRACE_ISA_BYTES    width of a vector register
//   TERRACE_ISA_BATCH    rows of K (or columns of V) a register tile holds
//
// Includes nothing that defines inline functions: the linker could keep this copy of them for the
// whole program, which would then fail on processors without the instruction set.
//
// Attention, for a panel of `lanes` query rows (GQA: token by head) against one KV head. Lanes of a
// vector are query rows, so that K and V are only ever broadcast, straight from where they lie,
// whatever the block size; masks, maxima and sums need no work across lanes. For each tile of 64
// tokens, with the running maximum m and sum l of a lane:
//   S[t] = scale q . K[t]          m' = max(m, max_t S[t])        P[t] = 2^(S[t] - m')
//   O    = O 2^(m - m') + sum_t P[t] V[t]                         l    = l 2^(m - m') + sum_t P[t]
// and out = O / l at the end. The scale includes log2(e), for 2^x is cheaper than e^x. Tiles begin
// at multiples of 64 in the sequence: block size and chunk bounds never change the order of
// additions.
#include "engine/kernels.hpp"

namespace terrace::engine::TERRACE_ISA {
extern const Kernels kKernels;
namespace {

constexpr int kVectorFloats = TERRACE_ISA_BYTES / sizeof(float);
constexpr int kBatch = TERRACE_ISA_BATCH;
constexpr int kWidest = 3;  // vectors of a register tile's row: 3 x kBatch sums stay in registers
constexpr int kTileTokens = 64;
constexpr float kMasked = -1e30F;  // finite: differences of two of them are not NaN

typedef float Floats __attribute__((vector_size(TERRACE_ISA_BYTES)));
typedef unsigned Bits __attribute__((vector_size(TERRACE_ISA_BYTES)));

inline Floats load(const float* from) {
  Floats value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
inline void store(float* to, Floats value) {
  __builtin_memcpy(to, &value, sizeof value);
}
inline Floats all(float value) {
  return value - Floats{};
}
inline Floats larger(Floats a, Floats b) {
  return a > b ? a : b;
}

inline float sum_of(Floats value) {
  float sum = 0;
  for (int i = 0; i < kVectorFloats; ++i) sum += value[i];
  return sum;
}

// 2^x for x <= 126 (garbage above), with a relative error below 2e-7; 0 below -125. Split into 2^n,
// by the exponent's bits, and 2^f, f in [-0.5, 0.5], by its Taylor series: the first term left out
// is (0.5 ln 2)^7 / 7! = 1.2e-7.
inline Floats exp2_of(Floats x) {
  const Floats clamped = larger(x, all(-125.0F));
  const Floats magic =
      all(0x1.8p23F);  // adding it rounds to an integer, in the low bits of the sum
  const Floats shifted = clamped + magic;
  const Floats f = clamped - (shifted - magic);
  Floats power = all(1.5403530e-4F);
  power = power * f + 1.3333558e-3F;
  power = power * f + 9.6181291e-3F;
  power = power * f + 5.5504109e-2F;
  power = power * f + 2.4022651e-1F;
  power = power * f + 6.9314718e-1F;
  power = power * f + 1.0F;
  const Bits exponent = (Bits)shifted << 23;  // the magic number's own bits are shifted out
  const Floats result = (Floats)((Bits)power + exponent);
  return x < all(-125.0F) ? Floats{} : result;
}

// Lanes = Width vectors of query rows.
template <int Width>
struct Panel {
  static constexpr int kLanes = Width * kVectorFloats;

  const AttentionPanel& in;
  float* q;        // [head_dim][lanes], scaled
  float* o;        // [head_dim][lanes]
  float* s;        // [kTileTokens][lanes]: S, then P
  float* factor;   // [lanes]: 2^(m - m')
  float* maximum;  // [lanes]: m
  float* sum;      // [lanes]: l
  int positions[kLanes];
  const float* k_rows[kTileTokens];

  explicit Panel(const AttentionPanel& panel) : in(panel) {
    const std::size_t plane = std::size_t{in.head_dim} * kLanes;
    q = in.scratch;
    o = q + plane;
    s = o + plane;
    factor = s + kTileTokens * kLanes;
    maximum = factor + kLanes;
    sum = maximum + kLanes;
  }

  // Transposes the queries; lanes without a row compute a copy of the last one's position on zeros.
  void begin() {
    const float scale = in.scale * 1.44269504F;  // log2(e)
    for (int lane = 0; lane < kLanes; ++lane) {
      const bool used = lane < static_cast<int>(in.rows);
      const std::uint32_t row = in.first_row + (used ? lane : in.rows - 1);
      const std::uint32_t token = row / in.group;
      const float* from = in.q + token * in.q_stride + row % in.group * in.head_dim;
      positions[lane] = static_cast<int>(in.first_position + token);
      for (std::uint32_t d = 0; d < in.head_dim; ++d) {
        q[d * kLanes + lane] = used ? from[d] * scale : 0.0F;
        o[d * kLanes + lane] = 0;
      }
      maximum[lane] = kMasked;
      sum[lane] = 0;
    }
  }

  void locate(std::uint32_t first, int count) {
    std::uint32_t block = first / in.kv.block_tokens;
    std::uint32_t row = first % in.kv.block_tokens;
    for (int t = 0; t < count; ++t) {
      k_rows[t] = reinterpret_cast<const float*>(in.kv.blocks[block] + in.kv.k_offset) +
                  std::size_t{row} * in.head_dim;
      if (++row == in.kv.block_tokens) {
        row = 0;
        ++block;
      }
    }
  }

  // S of `Batch` tokens from t on: a register tile of Batch x Width sums over head_dim.
  template <int Batch>
  void score(int t) {
    Floats sums[Batch][Width] = {};
    const float* keys[Batch];
    for (int b = 0; b < Batch; ++b) keys[b] = k_rows[t + b];
    for (std::uint32_t d = 0; d < in.head_dim; ++d) {
      Floats query[Width];
      for (int w = 0; w < Width; ++w) query[w] = load(q + d * kLanes + w * kVectorFloats);
      for (int b = 0; b < Batch; ++b) {
        const Floats key = all(keys[b][d]);
        for (int w = 0; w < Width; ++w) sums[b][w] += key * query[w];
      }
    }
    for (int b = 0; b < Batch; ++b) {
      for (int w = 0; w < Width; ++w) store(s + (t + b) * kLanes + w * kVectorFloats, sums[b][w]);
    }
  }

  void mask(std::uint32_t first, int count) {
    for (int t = 0; t < count; ++t) {
      for (int lane = 0; lane < kLanes; ++lane) {
        float& score = s[t * kLanes + lane];
        score = positions[lane] >= static_cast<int>(first) + t ? score : kMasked;
      }
    }
  }

  // S becomes P; maximum, sum and factor move on.
  void soften(int count) {
    for (int w = 0; w < Width; ++w) {
      const int at = w * kVectorFloats;
      const Floats before = load(maximum + at);
      Floats most = before;
      for (int t = 0; t < count; ++t) most = larger(most, load(s + t * kLanes + at));
      Floats total{};
      for (int t = 0; t < count; ++t) {
        const Floats p = exp2_of(load(s + t * kLanes + at) - most);
        store(s + t * kLanes + at, p);
        total += p;
      }
      const Floats shrink = exp2_of(before - most);
      store(factor + at, shrink);
      store(maximum + at, most);
      store(sum + at, load(sum + at) * shrink + total);
    }
  }

  // O of `Batch` dimensions from d on: a register tile of Batch x Width sums over the tile's
  // tokens.
  template <int Batch>
  void blend(std::uint32_t d, int count) {
    Floats sums[Batch][Width];
    for (int w = 0; w < Width; ++w) {
      const Floats shrink = load(factor + w * kVectorFloats);
      for (int b = 0; b < Batch; ++b) {
        sums[b][w] = shrink * load(o + (d + b) * kLanes + w * kVectorFloats);
      }
    }
    const std::size_t to_value = in.kv.v_bytes / sizeof(float) + d;
    for (int t = 0; t < count; ++t) {
      const float* values = k_rows[t] + to_value;
      Floats p[Width];
      for (int w = 0; w < Width; ++w) p[w] = load(s + t * kLanes + w * kVectorFloats);
      for (int b = 0; b < Batch; ++b) {
        const Floats value = all(values[b]);
        for (int w = 0; w < Width; ++w) sums[b][w] += value * p[w];
      }
    }
    for (int b = 0; b < Batch; ++b) {
      for (int w = 0; w < Width; ++w) {
        store(o + (d + b) * kLanes + w * kVectorFloats, sums[b][w]);
      }
    }
  }

  void end() {
    for (int lane = 0; lane < static_cast<int>(in.rows); ++lane) {
      const std::uint32_t row = in.first_row + lane;
      float* to = in.out + row / in.group * in.out_stride + row % in.group * in.head_dim;
      const float inverse = 1.0F / sum[lane];
      for (std::uint32_t d = 0; d < in.head_dim; ++d) to[d] = o[d * kLanes + lane] * inverse;
    }
  }

  void tile(std::uint32_t first, int count) {
    locate(first, count);
    int t = 0;
    for (; t + kBatch <= count; t += kBatch) score<kBatch>(t);
    for (; t < count; ++t) score<1>(t);
    if (static_cast<int>(first) + count - 1 > positions[0]) mask(first, count);
    soften(count);
    std::uint32_t d = 0;
    for (; d + kBatch <= in.head_dim; d += kBatch) blend<kBatch>(d, count);
    for (; d < in.head_dim; ++d) blend<1>(d, count);
  }

  void run() {
    begin();
    const std::uint32_t end_token = static_cast<std::uint32_t>(positions[in.rows - 1]) + 1;
    for (std::uint32_t first = 0; first < end_token; first += kTileTokens) {
      const std::uint32_t left = end_token - first;
      tile(first, left < kTileTokens ? static_cast<int>(left) : kTileTokens);
    }
    end();
  }
};

void attend(const AttentionPanel& panel) {
  if (panel.rows <= kVectorFloats) {
    Panel<1>(panel).run();
  } else if (panel.rows <= 2 * kVectorFloats) {
    Panel<2>(panel).run();
  } else {
    Panel<kWidest>(panel).run();
  }
}

std::size_t scratch_floats(std::uint32_t head_dim) {
  return (2 * std::size_t{head_dim} + kTileTokens + 3) * kWidest * kVectorFloats;
}

void rms_norm(const float* x, const float* weight, float eps, float* out, std::size_t size) {
  Floats partial{};
  std::size_t i = 0;
  for (; i + kVectorFloats <= size; i += kVectorFloats) partial += load(x + i) * load(x + i);
  float squares = sum_of(partial);
  for (; i < size; ++i) squares += x[i] * x[i];
  const float inverse = 1.0F / __builtin_sqrtf(squares / static_cast<float>(size) + eps);
  for (i = 0; i + kVectorFloats <= size; i += kVectorFloats) {
    store(out + i, load(x + i) * inverse * load(weight + i));
  }
  for (; i < size; ++i) out[i] = x[i] * inverse * weight[i];
}

// Below gate = -87, exp(-gate) overflows and the quotient is 0 to float32's precision.
inline Floats silu_of(Floats gate) {
  const Floats power = gate * -1.44269504F;  // exp(-gate) = 2^power
  const Floats quotient = gate / (1.0F + exp2_of(power));
  return power > all(126.0F) ? Floats{} : quotient;
}

void silu_multiply(const float* gate, const float* up, float* out, std::size_t size) {
  std::size_t i = 0;
  for (; i + kVectorFloats <= size; i += kVectorFloats) {
    store(out + i, silu_of(load(gate + i)) * load(up + i));
  }
  if (i == size) return;
  float rest[kVectorFloats] = {};
  for (std::size_t j = i; j < size; ++j) rest[j - i] = gate[j];
  store(rest, silu_of(load(rest)));
  for (std::size_t j = i; j < size; ++j) out[j] = rest[j - i] * up[j];
}

void rotate(const float* head, const float* cosines, const float* sines, float* out,
            std::size_t half) {
  for (std::size_t i = 0; i < half; ++i) {
    const float first = head[i];
    const float second = head[i + half];
    out[i] = first * cosines[i] - second * sines[i];
    out[i + half] = second * cosines[i] + first * sines[i];
  }
}

constexpr const char* kName = TERRACE_ISA_BYTES == 64   ? "x86-64-v4"
                              : TERRACE_ISA_BYTES == 32 ? "x86-64-v3"
                                                        : "portable";

}  // namespace

const Kernels kKernels = {kName,    kWidest* kVectorFloats, scratch_floats, attend,
                          rms_norm, silu_multiply,          rotate};

}  // namespace terrace::engine::TERRACE_ISA
