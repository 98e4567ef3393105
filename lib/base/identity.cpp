// See terrace/identity.hpp.
#include "terrace/identity.hpp"

#include <algorithm>
#include <vector>

#include "base/tagged_hash.hpp"

namespace terrace {

Digest sha256(std::span<const std::byte> bytes) {
  internal::Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string to_hex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (const std::byte byte : digest) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

Result<Digest> weights_digest(std::span<const TensorDigest> tensors) {
  std::vector<const TensorDigest*> sorted;
  sorted.reserve(tensors.size());
  for (const TensorDigest& tensor : tensors) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, &TensorDigest::name);  // by bytes: the same in every locale
  if (std::ranges::adjacent_find(sorted, {}, &TensorDigest::name) != sorted.end()) {
    return fail(
        Code::invalid_argument,
        "two tensors have one name: name each tensor of the checkpoint once, as in its files");
  }
  internal::TaggedHash hash("terrace.weights.v1");
  hash.put("tensors", sorted.size());
  for (const TensorDigest* tensor : sorted) {
    hash.put("name", tensor->name).put("dtype", tensor->dtype).put("dims", tensor->shape.size());
    for (const std::uint64_t extent : tensor->shape) hash.put("extent", extent);
    hash.put("content", tensor->content);
  }
  return hash.finish();
}

}  // namespace terrace
