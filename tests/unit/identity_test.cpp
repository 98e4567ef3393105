// Digests of content: SHA-256, hex, and the weights digest (I1: of content, never of a path or an
// order). The golden values come from an independent program (Python's hashlib over the documented
// encoding).
#include "terrace/identity.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/tagged_hash.hpp"

namespace terrace {
namespace {

Digest filled(int value) {
  Digest digest;
  digest.fill(static_cast<std::byte>(value));
  return digest;
}

std::string sha256_hex(std::string_view text) {
  return to_hex(sha256(std::as_bytes(std::span(text))));
}

const std::vector<std::uint64_t> kVector = {3};
const std::vector<std::uint64_t> kMatrix = {2, 4};

std::vector<TensorDigest> two_tensors() {
  return {{"b", kMatrix, "BF16", filled(6)}, {"a", kVector, "F32", filled(5)}};
}

TEST(Sha256, EqualsThePublishedTestVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, ThreadsDoNotShareAContext) {
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (bool& result : equal) {
    threads.emplace_back([&result] {
      result = true;
      for (int i = 0; i < 1000; ++i) {
        result &= sha256_hex("abc").starts_with("ba7816bf");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(std::ranges::all_of(equal, std::identity{}));
}

TEST(WeightsDigest, GoldenVector) {
  const auto digest = weights_digest(two_tensors());
  ASSERT_TRUE(digest);
  EXPECT_EQ(to_hex(*digest), "ba7af35b7832ff9bbab0e756b388048015eeed7af92b56b98059713e9fe1772e");
}

TEST(WeightsDigest, DoesNotDependOnTheOrderOfTheFile) {
  auto tensors = two_tensors();
  const Digest one = *weights_digest(tensors);
  std::ranges::reverse(tensors);
  EXPECT_EQ(one, *weights_digest(tensors));
}

TEST(WeightsDigest, EveryPartOfATensorCounts) {
  const Digest original = *weights_digest(two_tensors());
  std::vector<Digest> changed;
  const auto with = [&](auto change) {
    auto tensors = two_tensors();
    change(tensors[0]);
    changed.push_back(*weights_digest(tensors));
  };
  const std::vector<std::uint64_t> transposed = {4, 2};
  const std::vector<std::uint64_t> flat = {8};
  with([](TensorDigest& tensor) { tensor.name += 'c'; });
  with([](TensorDigest& tensor) { tensor.dtype += 'x'; });
  with([&](TensorDigest& tensor) { tensor.shape = transposed; });
  with([&](TensorDigest& tensor) { tensor.shape = flat; });
  with([](TensorDigest& tensor) { tensor.shape = {}; });
  with([](TensorDigest& tensor) { tensor.content[31] ^= std::byte{1}; });  // one weight bit
  const auto both = two_tensors();
  changed.push_back(*weights_digest(std::span(both).first(1)));
  changed.push_back(*weights_digest({}));
  changed.push_back(original);
  std::ranges::sort(changed);
  EXPECT_EQ(std::ranges::adjacent_find(changed), changed.end());
}

TEST(WeightsDigest, TextCannotMoveBetweenNeighbours) {
  const std::vector<TensorDigest> one = {{"ab", kVector, "c", filled(1)}};
  const std::vector<TensorDigest> other = {{"a", kVector, "bc", filled(1)}};
  EXPECT_NE(*weights_digest(one), *weights_digest(other));
}

TEST(WeightsDigest, RefusesTwoTensorsOfOneName) {
  auto tensors = two_tensors();
  tensors[0].name = tensors[1].name;
  const auto digest = weights_digest(tensors);
  ASSERT_FALSE(digest);
  EXPECT_EQ(digest.error().code, Code::invalid_argument);
  EXPECT_NE(std::string(digest.error().message).find("one name"), std::string::npos);
}

TEST(TaggedHash, AbsentEmptyAndZeroDiffer) {
  const auto hash = [](auto value) { return internal::TaggedHash("t").put("x", value).finish(); };
  const Digest absent = hash(std::optional<std::string_view>());
  const Digest empty = hash(std::string_view(""));
  const Digest zero = hash(0U);
  const Digest zero_bytes = hash(std::string_view("\0\0\0\0", 4));
  EXPECT_NE(absent, empty);
  EXPECT_NE(empty, zero);
  EXPECT_NE(zero, zero_bytes);
  EXPECT_EQ(empty, hash(std::optional<std::string_view>("")));
  EXPECT_EQ(zero, hash(std::uint64_t{0}));  // the width of a C++ type is not content
}

}  // namespace
}  // namespace terrace
