// Who computed a block: the complete, fail-closed identity of a model, and the scope of a request.
//
// Two runs share KV only where every field below is equal. A field is "known" or absent; absent is
// not empty, and a cache refuses to bind an identity with an absent field
// (Code::identity_incomplete): it never guesses.
// Thread rule: plain values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "terrace/result.hpp"

namespace terrace {

// SHA-256.
using Digest = std::array<std::byte, 32>;

// Returns: the SHA-256 of `bytes`.
Digest sha256(std::span<const std::byte> bytes);
std::string to_hex(const Digest& digest);

// One tensor of a checkpoint, as it enters the weights digest.
struct TensorDigest {
  std::string name;
  std::span<const std::uint64_t> shape;  // borrowed for the call
  std::string dtype;                     // as stored: "F32", "BF16", ...
  Digest content{};                      // SHA-256 of the stored bytes
};

// The weights digest: SHA-256 over the count and then, sorted by name, the length-prefixed name,
// dtype, shape and content digest of each tensor. It depends on content only, never on a path, a
// name on a hub or an order in a file. Returns: the digest; invalid_argument where two tensors have
// one name.
Result<Digest> weights_digest(std::span<const TensorDigest> tensors);

struct ModelIdentity {
  std::optional<Digest>
      weights;  // weights_digest() of the checkpoint as loaded: revision and quantization
  std::optional<Digest> tokenizer;  // digest of everything that maps text to token ids
  std::optional<Digest> attention;  // digest of RoPE and attention configuration
  std::optional<std::string>
      quantization;  // how weights are used in compute: "none", "fp8-e4m3", ...
  std::optional<std::string> kv_scaling;  // scale scheme of quantized KV; "none" for plain dtypes
  std::optional<std::string>
      numerics;  // optional tag of kernels whose results must not mix; may stay absent
};

// What narrows the identity for one request. Absent is not empty here either.
struct Scope {
  // LoRA or other adapter: digest of its weights.
  std::optional<Digest> adapter = std::nullopt;
  // Requests share KV only within one salt. Set it on the server side.
  std::optional<std::string_view> tenant_salt = std::nullopt;
  friend bool operator==(const Scope&, const Scope&) = default;
};

}  // namespace terrace
