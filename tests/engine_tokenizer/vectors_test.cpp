// Whole tokenizers against published vectors: Llama 2's vocabulary, Qwen's, and the golden prompts
// of a tiny Llama.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <memory>
#include <sstream>

#include "engine_tokenizer/model_files.hpp"
#include "support/shared_data.hpp"

namespace terrace::test {
namespace {

using engine::Tokenizer;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string unzip(const std::filesystem::path& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  std::string content;
  std::vector<char> buffer(1 << 20);
  for (int got; (got = gzread(file.get(), buffer.data(), buffer.size())) > 0;) {
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return content;
}

struct Vector {
  std::string text;
  Ids ids;
};

std::vector<Vector> read_vectors(const std::string& name) {
  static const std::string separator = "\n__ggml_vocab_test__\n";
  const auto folder = shared_data() / "tokenizers/ggml-vocab";
  const std::string texts = read_file(folder / (name + ".inp"));
  std::istringstream lines(read_file(folder / (name + ".out")));
  std::vector<Vector> vectors;
  for (std::size_t begin = 0; begin <= texts.size();) {
    const std::size_t end = std::min(texts.find(separator, begin), texts.size());
    std::string line;
    std::getline(lines, line);
    std::istringstream numbers(line);
    vectors.push_back(
        {texts.substr(begin, end - begin), Ids(std::istream_iterator<std::uint32_t>(numbers), {})});
    begin = end + separator.size();
  }
  return vectors;
}

// Texts and ids must be all there: two files that were both cut short would agree as well.
void expect_vectors(const Tokenizer& tokenizer, const std::string& name) {
  const std::vector<Vector> vectors = read_vectors(name);
  ASSERT_EQ(vectors.size(), 47U);
  std::size_t ids = 0;
  for (const Vector& vector : vectors) {
    EXPECT_EQ(tokenizer.encode(vector.text, false), vector.ids) << "text: " << vector.text;
    EXPECT_EQ(tokenizer.decode(vector.ids), vector.text);
    EXPECT_EQ(stream(tokenizer, vector.ids), vector.text);
    ids += vector.ids.size();
  }
  EXPECT_GT(ids, 300U);
}

void expect_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  const Ids ids = tokenizer.encode(text);
  EXPECT_LT(ids.size(), text.size());
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(stream(tokenizer, ids), text);
}

TEST(Vectors, TinyLlama) {
  TERRACE_REQUIRE_SHARED("tokenizers/TinyLlama_v1.1/tokenizer.json");
  const auto tokenizer = Tokenizer::load(shared_data() / "tokenizers/TinyLlama_v1.1");
  expect_vectors(tokenizer, "ggml-vocab-llama-spm.gguf");
  EXPECT_EQ(tokenizer.vocab_size(), 32000U);
  EXPECT_EQ(tokenizer.bos_id(), 1U);
  EXPECT_THAT(tokenizer.eos_ids(), testing::ElementsAre(2));
  EXPECT_THAT(tokenizer.encode("Hello world"), testing::ElementsAre(1, 15043, 3186));
}

TEST(Vectors, Qwen3) {
  TERRACE_REQUIRE_SHARED("tokenizers/qwen3/tokenizer.json.gz");
  const ModelFiles files;
  files.write("tokenizer.json", unzip(shared_data() / "tokenizers/qwen3/tokenizer.json.gz"));
  files.write("tokenizer_config.json",
              read_file(shared_data() / "tokenizers/qwen3/tokenizer_config.json"));
  const auto tokenizer = Tokenizer::load(files.path());
  expect_vectors(tokenizer, "ggml-vocab-qwen2.gguf");
  EXPECT_EQ(tokenizer.vocab_size(), 151669U);
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
  EXPECT_THAT(tokenizer.eos_ids(), testing::ElementsAre(151645));
  EXPECT_THAT(tokenizer.encode("<|im_start|>user\nHi<|im_end|>"),
              testing::ElementsAre(151644, 872, 198, 13048, 151645));
  TERRACE_REQUIRE_SHARED("prompts/war_and_peace_excerpt.txt");
  expect_round_trip(tokenizer, read_file(shared_data() / "prompts/war_and_peace_excerpt.txt"));
}

// Llama 2 does not cut a text before merging it: 200 kB are one piece.
TEST(Vectors, ALongTextRoundTrips) {
  TERRACE_REQUIRE_SHARED("tokenizers/TinyLlama_v1.1/tokenizer.json");
  TERRACE_REQUIRE_SHARED("prompts/war_and_peace_excerpt.txt");
  const auto tokenizer = Tokenizer::load(shared_data() / "tokenizers/TinyLlama_v1.1");
  const std::string text = read_file(shared_data() / "prompts/war_and_peace_excerpt.txt");
  expect_round_trip(tokenizer, text);
  // Any cut of the text, in the middle of words and code points too.
  for (std::size_t bytes = 1; bytes < 3000; bytes += 37) {
    const std::string part = text.substr(0, bytes);
    EXPECT_EQ(tokenizer.encode(tokenizer.decode(tokenizer.encode(part))), tokenizer.encode(part));
  }
}

TEST(Vectors, Stories260K) {
  TERRACE_REQUIRE_SHARED("models/stories260K/hf/tokenizer.json");
  const auto folder = shared_data() / "models/stories260K";
  const auto tokenizer = Tokenizer::load(folder / "hf");
  const json golden = json::parse(read_file(folder / "golden_greedy.json"));
  ASSERT_EQ(golden["cases"].size(), 9U);
  for (const json& one : golden["cases"]) {
    const Ids prompt = one["prompt_ids"].get<Ids>();
    EXPECT_EQ(tokenizer.encode(one["prompt"].get<std::string>()), prompt) << one["name"];
    EXPECT_EQ(tokenizer.decode(prompt), one["prompt"].get<std::string>()) << one["name"];
    engine::StreamDecoder decoder(tokenizer, prompt);
    std::string generated;
    for (const std::uint32_t id : one["generated_ids"].get<Ids>()) generated += decoder.push(id);
    EXPECT_EQ(generated + decoder.finish(), one["generated_text"].get<std::string>())
        << one["name"];
    Ids all = prompt;
    for (const std::uint32_t id : one["generated_ids"].get<Ids>()) all.push_back(id);
    EXPECT_EQ(tokenizer.decode(all), one["text"].get<std::string>()) << one["name"];
  }
}

}  // namespace
}  // namespace terrace::test
