// The weights digest is of content alone, and its memory is only ever a shortcut.
#include "engine/weights_digest.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "engine/checkpoints.hpp"

namespace terrace::engine {
namespace {

using std::chrono::nanoseconds;
using test::RandomTensors;

class WeightsDigestTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(model_);
    tensors_.write(model_ / "model.safetensors");
  }
  // Whether tensors were hashed is seen by the progress that hashing reports.
  struct Answer {
    Digest digest;
    bool hashed;
  };
  Answer digest(const std::filesystem::path& directory, const DigestMemory* memory = nullptr) {
    bool hashed = false;
    const Progress progress = [&](std::string_view, std::uint64_t, std::uint64_t) {
      hashed = true;
    };
    const Digest result = checkpoint_digest(Checkpoint(directory), memory, team_, progress);
    return {result, hashed};
  }
  void flip_last_byte(const std::filesystem::path& file) {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(-1, std::ios::end);
    const char last = static_cast<char>(stream.get());
    stream.seekp(-1, std::ios::end);
    stream.put(static_cast<char>(last ^ 1));
  }
  std::filesystem::path only_file_of(const std::filesystem::path& directory) {
    const std::filesystem::directory_iterator first(directory);
    return first->path();
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path model_ = directory_ / "model";
  std::filesystem::path cache_ = directory_ / "cache";
  RandomTensors tensors_{test::odd_config(), 4};
  ThreadTeam team_{2};
  DigestMemory memory_{cache_, nanoseconds(0)};
};

TEST_F(WeightsDigestTest, OneChangedByteChangesIt) {
  const Digest before = digest(model_).digest;
  flip_last_byte(model_ / "model.safetensors");
  EXPECT_NE(digest(model_).digest, before);
}

TEST_F(WeightsDigestTest, PathShardsAndThreadsDoNot) {
  const Digest before = digest(model_).digest;
  const auto copy = directory_ / "copy";
  std::filesystem::create_directory(copy);
  tensors_.write_sharded(copy);
  EXPECT_EQ(digest(copy).digest, before);
  ThreadTeam alone(1);
  EXPECT_EQ(hash_weights(tensors_, alone, {}), before);
}

TEST_F(WeightsDigestTest, IsTheCombinationOfTheTensorsHashes) {
  std::vector<TensorDigest> parts;
  for (const TensorInfo& tensor : tensors_.tensors()) {
    parts.push_back({tensor.name, tensor.shape, tensor.dtype,
                     sha256(std::as_bytes(std::span(tensors_.values(tensor.name))))});
  }
  EXPECT_EQ(digest(model_).digest, weights_digest(parts).value());
}

TEST_F(WeightsDigestTest, IsRememberedUntilTheFileChanges) {
  const Answer first = digest(model_, &memory_);
  EXPECT_TRUE(first.hashed);
  const Answer second = digest(model_, &memory_);
  EXPECT_FALSE(second.hashed);
  EXPECT_EQ(second.digest, first.digest);

  flip_last_byte(model_ / "model.safetensors");  // same size, other times
  const Answer third = digest(model_, &memory_);
  EXPECT_TRUE(third.hashed);
  EXPECT_NE(third.digest, first.digest);
}

TEST_F(WeightsDigestTest, AnotherFileOfTheSameSizeAndTimeIsNotMistaken) {
  const auto file = model_ / "model.safetensors";
  const auto time = std::filesystem::last_write_time(file);
  const Answer first = digest(model_, &memory_);
  RandomTensors(test::odd_config(), 5).write(directory_ / "other");
  std::filesystem::rename(directory_ / "other", file);
  std::filesystem::last_write_time(file, time);
  const Answer second = digest(model_, &memory_);
  EXPECT_TRUE(second.hashed);
  EXPECT_NE(second.digest, first.digest);
}

TEST_F(WeightsDigestTest, ADamagedMemoryIsIgnoredAndReplaced) {
  const Answer first = digest(model_, &memory_);
  const auto file = only_file_of(cache_);
  const std::string good = test::read_file(file);
  std::vector<std::string> damaged{"", "nonsense", good.substr(0, good.size() / 2)};
  for (std::size_t at = 0; at < good.size(); at += 7) {
    damaged.push_back(good);
    damaged.back()[at] ^= 1;
  }
  for (const std::string& content : damaged) {
    test::write_file(file, content);
    const Answer again = digest(model_, &memory_);
    EXPECT_TRUE(again.hashed) << content;
    EXPECT_EQ(again.digest, first.digest);
    EXPECT_EQ(test::read_file(file), good);
  }
}

TEST_F(WeightsDigestTest, WorksWithoutAWritableDirectory) {
  const Digest expected = digest(model_).digest;
  test::write_file(directory_ / "file", "");  // a directory cannot be made below a file
  const DigestMemory nowhere(directory_ / "file" / "cache", nanoseconds(0));
  EXPECT_EQ(digest(model_, &nowhere).digest, expected);
  EXPECT_TRUE(digest(model_, &nowhere).hashed);
}

TEST_F(WeightsDigestTest, LeavesNoTemporaryFile) {
  digest(model_, &memory_);
  const std::filesystem::directory_iterator files(cache_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(WeightsDigestTest, AFileThatWasJustWrittenIsNotRemembered) {
  const DigestMemory careful(cache_, std::chrono::hours(1));
  digest(model_, &careful);
  EXPECT_TRUE(digest(model_, &careful).hashed);
}

}  // namespace
}  // namespace terrace::engine
