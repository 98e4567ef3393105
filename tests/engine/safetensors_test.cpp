// Checkpoint files: what is read, and every way in which one can be broken.
#include "engine/safetensors.hpp"

#include <gmock/gmock.h>

#include <random>

#include "engine/checkpoints.hpp"
#include "engine/forward.hpp"
#include "engine/model.hpp"
#include "engine/paged_memory.hpp"
#include "engine/tokenizer/load_error.hpp"
#include "support/shared_data.hpp"

namespace terrace::engine {
namespace {

using test::RandomTensors;
using test::safetensors;
using testing::AllOf;
using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  // What opening says about a file of these bytes.
  std::string error(const std::string& bytes) {
    test::write_file(file_, bytes);
    return test::error_of<LoadError>([&] { Checkpoint checkpoint(directory_.path()); });
  }
  std::string header_error(const std::string& header, std::size_t data_bytes = 16) {
    return error(safetensors(header, std::string(data_bytes, 'x')));
  }

  test::TemporaryDirectory directory_;
  std::filesystem::path file_ = directory_ / "model.safetensors";
  ModelConfig config_ = test::odd_config();
  RandomTensors tensors_{config_, 1};
};

TEST_F(SafetensorsTest, ReadsWhatWasWritten) {
  tensors_.write(file_);
  const Checkpoint checkpoint(directory_.path());
  ASSERT_EQ(checkpoint.tensors().size(), tensors_.tensors().size());
  std::vector<std::byte> scratch;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const auto expected = std::as_bytes(std::span(tensors_.values(tensor.name)));
    const auto bytes = checkpoint.read(tensor, 0, tensor.elements(), scratch);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()));
    const auto part = checkpoint.read(tensor, 3, 2, scratch);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + 12));
  }
  EXPECT_EQ(checkpoint.find("lm_head.weight")->shape, (std::vector<std::uint64_t>{300, 60}));
  EXPECT_EQ(checkpoint.find("nothing"), nullptr);
}

TEST_F(SafetensorsTest, ScalarsAndEmptyTensorsAreTensors) {
  test::write_file(file_, safetensors(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                      R"("e":{"dtype":"F16","shape":[0,7],"data_offsets":[4,4]}})",
                                      "abcd"));
  const Checkpoint checkpoint(directory_.path());
  EXPECT_EQ(checkpoint.find("s")->elements(), 1U);
  EXPECT_EQ(checkpoint.find("e")->elements(), 0U);
}

TEST_F(SafetensorsTest, EveryTruncationIsAnError) {
  tensors_.write(file_);
  const std::string whole = test::read_file(file_);
  std::mt19937 random(2);
  std::vector<std::size_t> lengths{0, 1, 7, 8, 9, whole.size() - 1};
  for (int i = 0; i < 40; ++i) lengths.push_back(random() % whole.size());
  for (const std::size_t length : lengths) {
    EXPECT_THAT(error(whole.substr(0, length)),
                AllOf(HasSubstr(file_.string()), HasSubstr("download it again")))
        << length;
  }
  EXPECT_THAT(error(whole.substr(0, whole.size() - 1)), HasSubstr("tensor \""));
}

TEST_F(SafetensorsTest, RandomDamageToTheHeaderNeverCrashes) {
  tensors_.write(file_);
  const std::string whole = test::read_file(file_);
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    for (int j = 0; j < 3; ++j) damaged[random() % 2000] = static_cast<char>(random());
    test::write_file(file_, damaged);
    try {
      const Checkpoint checkpoint(directory_.path());
      std::vector<std::byte> scratch;
      for (const TensorInfo& tensor : checkpoint.tensors()) {
        EXPECT_EQ(checkpoint.read(tensor, 0, tensor.elements(), scratch).size(), tensor.bytes());
      }
    } catch (const LoadError&) {
    }
  }
}

TEST_F(SafetensorsTest, MalformedHeaders) {
  EXPECT_THAT(error(std::string(8, '\xff') + "{}"), HasSubstr("says its header has"));
  EXPECT_THAT(header_error("nonsense"), HasSubstr("not a JSON object"));
  EXPECT_THAT(header_error(R"([1])"), HasSubstr("not a JSON object"));
  EXPECT_THAT(header_error(R"({"a":7})"), HasSubstr("tensor \"a\": its header entry"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[4]}})"), HasSubstr("data_offsets"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})"),
              HasSubstr("shape has a bad number"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F31","shape":[4],"data_offsets":[0,16]}})"),
              HasSubstr("dtype \"F31\" is unknown"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})"),
              HasSubstr("need 12 bytes, data_offsets span 16"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})"),
              HasSubstr("not [begin, end]"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}})"),
              HasSubstr("which has only 16 bytes"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,2],)"
                           R"("data_offsets":[0,16]}})"),
              HasSubstr("its shape overflows"));
  EXPECT_THAT(header_error(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
                           R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})"),
              HasSubstr("\"a\" and \"b\" overlap"));
}

TEST_F(SafetensorsTest, MissingFilesAndShards) {
  EXPECT_THAT(test::error_of<LoadError>([&] { Checkpoint checkpoint(directory_.path()); }),
              AllOf(HasSubstr(directory_.path().string()), HasSubstr("neither model.safetensors")));
  tensors_.write_sharded(directory_.path());
  const auto shard = directory_ / "model-00002-of-00002.safetensors";
  std::filesystem::remove(shard);
  EXPECT_THAT(test::error_of<LoadError>([&] { Checkpoint checkpoint(directory_.path()); }),
              HasSubstr("the shard model-00002-of-00002.safetensors is missing"));
  tensors_.write(shard, tensors_.tensors().size() - 1, tensors_.tensors().size());
  EXPECT_THAT(test::error_of<LoadError>([&] { Checkpoint checkpoint(directory_.path()); }),
              AllOf(HasSubstr(shard.string()), HasSubstr("is missing, which")));
  test::write_file(directory_ / "model.safetensors.index.json",
                   R"({"weight_map": {"a": "../model.safetensors"}})");
  EXPECT_THAT(test::error_of<LoadError>([&] { Checkpoint checkpoint(directory_.path()); }),
              HasSubstr("not a plain file name"));
  test::write_file(directory_ / "model.safetensors.index.json", "{}");
  EXPECT_THAT(test::error_of<LoadError>([&] { Checkpoint checkpoint(directory_.path()); }),
              HasSubstr("weight_map"));
}

// The rest is about whole models.
class ModelDirectoryTest : public SafetensorsTest {
 protected:
  void SetUp() override {
    test::write_file(directory_ / "config.json", test::config_json(config_).dump());
  }
  static std::vector<float> logits_of(const LoadedModel& model) {
    test::PagedMemory memory(model.config(), 16, 16);
    Forward forward(model.weights, {2, 16});
    const std::vector<std::uint32_t> tokens{1, 2, 3, 4, 5};
    const auto logits = forward.run(tokens, 0, memory.kv());
    return {logits.begin(), logits.end()};
  }
};

TEST_F(ModelDirectoryTest, ShardedEqualsSingle) {
  tensors_.write(file_);
  const LoadedModel single = load_model(directory_.path().string());
  std::filesystem::remove(file_);
  tensors_.write_sharded(directory_.path());
  const LoadedModel sharded = load_model(directory_.path().string());
  EXPECT_EQ(single.weights_digest, sharded.weights_digest);
  EXPECT_EQ(logits_of(single), logits_of(sharded));
}

TEST_F(ModelDirectoryTest, MissingAndMisshapenTensors) {
  const auto message = [&] {
    return test::error_of<LoadError>([&] { load_model(directory_.path().string()); });
  };
  tensors_.write(file_, 1, tensors_.tensors().size());  // without lm_head.weight
  EXPECT_THAT(message(), HasSubstr("tensor \"lm_head.weight\" is missing"));
  ModelConfig wider = config_;
  wider.intermediate_size = 173;
  RandomTensors(wider, 1).write(file_);
  EXPECT_THAT(message(), AllOf(HasSubstr("_proj.weight"), HasSubstr("the shape [173, 60]"),
                               HasSubstr("asks for [172, 60]")));
}

TEST_F(ModelDirectoryTest, TensorOfAnUnusableDtype) {
  tensors_.write(file_);
  std::string bytes = test::read_file(file_);
  for (auto at = bytes.find("\"F32\""); at != std::string::npos; at = bytes.find("\"F32\"")) {
    bytes.replace(at, 5, "\"I32\"");
  }
  test::write_file(file_, bytes);
  EXPECT_THAT(test::error_of<LoadError>([&] { load_model(directory_.path().string()); }),
              HasSubstr("has the dtype I32; use a checkpoint in F32, F16 or BF16"));
}

TEST_F(ModelDirectoryTest, SpecsThatNameNothing) {
  const auto message = [](const char* spec) {
    return test::error_of<LoadError>([&] { load_model(spec); });
  };
  EXPECT_THAT(message("builtin:large"), HasSubstr("no such built-in model"));
  EXPECT_THAT(message("/nowhere/at/all"), HasSubstr("is not a directory"));
}

TEST_F(ModelDirectoryTest, ProgressReachesTheEndAndNeverRunsInParallel) {
  tensors_.write(file_);
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> last;
  std::atomic<int> inside{0};
  LoadOptions options;
  options.threads = 3;
  options.progress = [&](std::string_view step, std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(++inside, 1);
    auto& entry = last[std::string(step)];
    EXPECT_GT(done, entry.first);
    entry = {done, total};
    --inside;
  };
  load_model(directory_.path().string(), options);
  ASSERT_EQ(last.size(), 2U);  // loading, hashing
  for (const auto& [step, entry] : last) EXPECT_EQ(entry.first, entry.second) << step;
}

}  // namespace
}  // namespace terrace::engine
