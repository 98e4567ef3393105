// Loading: files that are missing, cut or contradictory; special ids; the digest; the built-in byte
// tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine_tokenizer/model_files.hpp"

namespace terrace::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const ModelFiles& files) {
  try {
    engine::Tokenizer::load(files.path());
    return "";
  } catch (const engine::LoadError& error) {
    return error.what();
  }
}

const std::string good = document(bpe({"a", "<s>", "</s>"})).dump();

TEST(Load, MissingFile) {
  ModelFiles files;
  EXPECT_THAT(error_of(files), AllOf(HasSubstr((files.path() / "tokenizer.json").string()),
                                     HasSubstr("there is no such file")));
  files.write("tokenizer.model", "x");
  EXPECT_THAT(error_of(files), HasSubstr("tokenizer.model alone cannot be used"));
}

TEST(Load, ADirectoryOrALoopInPlaceOfAFile) {
  ModelFiles files;
  std::filesystem::create_directory(files.path() / "tokenizer.json");
  EXPECT_THAT(error_of(files), HasSubstr("tokenizer.json: cannot be read"));
  std::filesystem::remove(files.path() / "tokenizer.json");
  std::filesystem::create_symlink("tokenizer.json", files.path() / "tokenizer.json");
  EXPECT_THAT(error_of(files), HasSubstr("tokenizer.json: cannot be looked up"));
}

// Every proper beginning of a good file is an error, never a crash and never a tokenizer.
TEST(Load, TruncatedFile) {
  ModelFiles files;
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    files.write("tokenizer.json", good.substr(0, bytes));
    ASSERT_THAT(error_of(files), HasSubstr("tokenizer.json: is not valid JSON")) << bytes;
  }
  files.write("tokenizer.json", good);
  EXPECT_EQ(error_of(files), "");
}

TEST(Load, MalformedFile) {
  ModelFiles files;
  files.write("tokenizer.json", "{\"a\": \xFF}");
  EXPECT_THAT(error_of(files), HasSubstr("is not valid JSON"));
  files.write("tokenizer.json", "[]");
  EXPECT_THAT(error_of(files), HasSubstr("must be an object, is of type array"));
  files.write("tokenizer.json", "{}");
  EXPECT_THAT(error_of(files), HasSubstr("'model' is missing"));
  files.write("tokenizer.json", std::string(100'000, '['));
  EXPECT_THAT(error_of(files), HasSubstr("is not valid JSON"));
  files.write("tokenizer.json", good);
  files.write("tokenizer_config.json", "{");
  EXPECT_THAT(error_of(files), HasSubstr("tokenizer_config.json: is not valid JSON"));
}

TEST(Load, RefusesWhatWouldChangeIdsUnseen) {
  json tokenizer = json::parse(good);
  tokenizer["truncation"] = {{"max_length", 512}};
  EXPECT_THAT(load_error(tokenizer), HasSubstr("truncation: is set"));
  tokenizer = json::parse(good);
  tokenizer["padding"] = {{"strategy", {{"Fixed", 128}}}};
  EXPECT_THAT(load_error(tokenizer), HasSubstr("padding: pads texts"));
  tokenizer["padding"] = {{"strategy", "BatchLongest"}, {"pad_to_multiple_of", nullptr}};
  EXPECT_EQ(load_error(tokenizer), "") << "does nothing to a single text";
  tokenizer["version"] = "2.0";
  EXPECT_THAT(load_error(tokenizer), HasSubstr("only '1.0' is supported"));
  tokenizer = json::parse(good);
  tokenizer["post-processor"] = json();
  EXPECT_THAT(load_error(tokenizer), HasSubstr("'post-processor' is not a setting"));
}

TEST(Load, SpecialIdsComeFromTheFilesThatNameThem) {
  ModelFiles files;
  files.write("tokenizer.json", good);
  EXPECT_EQ(engine::Tokenizer::load(files.path()).bos_id(), std::nullopt);
  EXPECT_EQ(engine::Tokenizer::load(files.path()).eos_id(), std::nullopt);
  files.write("config.json", R"({"bos_token_id":1,"eos_token_id":2})");
  EXPECT_EQ(engine::Tokenizer::load(files.path()).bos_id(), 1U);
  EXPECT_THAT(engine::Tokenizer::load(files.path()).eos_ids(), ElementsAre(2));
  files.write("generation_config.json", R"({"eos_token_id":[0,2]})");
  EXPECT_THAT(engine::Tokenizer::load(files.path()).eos_ids(), ElementsAre(0, 2));
  files.write("tokenizer_config.json", R"({"bos_token":"a","eos_token":{"content":"</s>"}})");
  EXPECT_EQ(engine::Tokenizer::load(files.path()).bos_id(), 0U);
  EXPECT_THAT(engine::Tokenizer::load(files.path()).eos_ids(), ElementsAre(2, 0));
  EXPECT_EQ(engine::Tokenizer::load(files.path()).eos_id(), 2U);
  files.write("tokenizer_config.json", R"({"eos_token":"<end>"})");
  EXPECT_THAT(error_of(files), HasSubstr("eos_token: token '<end>' is not in tokenizer.json"));
  files.write("tokenizer_config.json", "{}");
  files.write("generation_config.json", R"({"eos_token_id":"2"})");
  EXPECT_THAT(error_of(files), HasSubstr("generation_config.json: eos_token_id: must be a whole"));
}

TEST(Load, DigestCoversWhatDecidesIdsAndNothingElse) {
  const json tokenizer = json::parse(good);
  const auto plain = load(tokenizer).digest();
  EXPECT_EQ(plain, load(tokenizer).digest()) << "the folder does not count";
  EXPECT_EQ(plain, load(tokenizer, {{"chat_template", "x"}}).digest());
  EXPECT_NE(plain, load(tokenizer, {{"add_bos_token", false}}).digest());
  EXPECT_NE(load(tokenizer, {{"add_bos_token", false}}).digest(),
            load(tokenizer, {{"add_eos_token", false}}).digest());
  json other = tokenizer;
  other["model"]["vocab"]["b"] = 3;
  EXPECT_NE(plain, load(other).digest());
  EXPECT_NE(plain, engine::Tokenizer::bytes().digest());
}

TEST(Bytes, IdsAreBytes) {
  const auto tokenizer = engine::Tokenizer::bytes();
  EXPECT_THAT(tokenizer.encode("aé"), ElementsAre(256, 0x61, 0xC3, 0xA9));
  EXPECT_THAT(tokenizer.encode(std::string_view("\0\n", 2), false), ElementsAre(0, 10));
  EXPECT_THAT(tokenizer.encode("<bos>", false), ElementsAre('<', 'b', 'o', 's', '>'));
  EXPECT_EQ(tokenizer.vocab_size(), 258U);
  EXPECT_EQ(tokenizer.bos_id(), engine::Tokenizer::bytes_bos_id);
  EXPECT_THAT(tokenizer.eos_ids(), ElementsAre(engine::Tokenizer::bytes_eos_id));
  EXPECT_TRUE(tokenizer.is_special(256));
  EXPECT_TRUE(tokenizer.is_special(257));
}

TEST(Bytes, RoundTripsAndStreams) {
  const auto tokenizer = engine::Tokenizer::bytes();
  const std::string text = "Tom said “hello” 你好 🦙\r\n\t";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_EQ(stream(tokenizer, tokenizer.encode(text)), text);
  EXPECT_EQ(tokenizer.decode(Ids{0xFF, 'a', 257, 0xE4, 0xBD}), "\uFFFDa\uFFFD");
}

TEST(Encode, IllFormedTextCountsAsReplacementCharacters) {
  const auto tokenizer = engine::Tokenizer::bytes();
  EXPECT_EQ(tokenizer.encode("a\xFF"), tokenizer.encode("a\uFFFD"));
  EXPECT_EQ(tokenizer.encode("\xE4\xBD"), tokenizer.encode("\uFFFD"));
  EXPECT_EQ(tokenizer.encode("\xED\xA0\x80"), tokenizer.encode("\uFFFD\uFFFD\uFFFD"));
}

TEST(Encode, ManyThreadsShareOneTokenizer) {
  json tokenizer = document(bpe({"a", "Ġ", "aa", "Ġaa"}, {"a a", "Ġ aa"}));
  tokenizer["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  tokenizer["decoder"] = {{"type", "ByteLevel"}};
  const auto shared = load(tokenizer);
  std::string text = "aa";
  for (int i = 0; i < 500; ++i) text += " aa";
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const Ids ids = shared.encode(text);
        if (ids.size() != 501 || shared.decode(ids) != text || stream(shared, ids) != text) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace terrace::test
