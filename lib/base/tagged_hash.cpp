// See tagged_hash.hpp.
#include "base/tagged_hash.hpp"

#include <openssl/evp.h>

#include <array>
#include <new>

namespace terrace::internal {
namespace {

template <std::size_t kBytes>
std::array<std::byte, kBytes> little_endian(std::uint64_t value) noexcept {
  std::array<std::byte, kBytes> bytes{};
  for (std::size_t i = 0; i < kBytes; ++i) {
    bytes[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  }
  return bytes;
}

// OpenSSL's digest calls fail only without memory: SHA-256 itself has no failing input.
void require(bool success) {
  if (!success) throw std::bad_alloc();
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const noexcept {
  EVP_MD_CTX_free(context);
}
void Sha256::Free::operator()(evp_md_st* algorithm) const noexcept {
  EVP_MD_free(algorithm);
}

Sha256::Sha256()
    : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context_(EVP_MD_CTX_new()) {
  require(algorithm_ != nullptr && context_ != nullptr);
  start();
}

void Sha256::start() {
  require(EVP_DigestInit_ex(context_.get(), algorithm_.get(), nullptr) == 1);
}

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

Digest Sha256::finish() {
  Digest digest;
  unsigned int written = 0;
  require(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                             &written) == 1 &&
          written == digest.size());
  start();
  return digest;
}

Sha256& thread_sha256() {
  thread_local Sha256 hash;
  return hash;
}

void TaggedHash::put_tag(std::string_view tag, bool present) {
  hash_.update(little_endian<4>(tag.size()));
  hash_.update(std::as_bytes(std::span(tag)));
  hash_.update(little_endian<1>(present ? 1 : 0));
}

TaggedHash& TaggedHash::put(std::string_view tag, std::span<const std::byte> value) {
  put_tag(tag, true);
  hash_.update(little_endian<8>(value.size()));
  hash_.update(value);
  return *this;
}

TaggedHash& TaggedHash::put_number(std::string_view tag, std::uint64_t value) {
  return put(tag, std::span<const std::byte>(little_endian<8>(value)));
}

TaggedHash& TaggedHash::put_absent(std::string_view tag) {
  put_tag(tag, false);
  return *this;
}

}  // namespace terrace::internal
