// Ids to text: each decoder, streaming, and that streaming and whole decoding agree. Expected texts
// are those of Hugging Face's tokenizers 0.23.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine_tokenizer/model_files.hpp"

namespace terrace::test {
namespace {

using testing::HasSubstr;

json with_decoder(const std::vector<std::string>& tokens, const std::string& decoder) {
  json tokenizer = document(bpe(tokens));
  tokenizer["decoder"] = json::parse(decoder);
  return tokenizer;
}

// As in Llama 2.
constexpr const char* llama_decoder =
    R"({"type":"Sequence","decoders":[
        {"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
        {"type":"Strip","content":" ","start":1,"stop":0}]})";

json llama() {
  json tokenizer = with_decoder(
      {"<s>", "▁a", "b", "▁", "<0xE4>", "<0xBD>", "<0xA0>", "<0xFF>", "<0x41>"}, llama_decoder);
  tokenizer["added_tokens"] = {added(0, "<s>", {{"special", true}})};
  return tokenizer;
}

TEST(Decoder, LlamaStripsTheFirstSpaceOnly) {
  const auto tokenizer = load(llama());
  EXPECT_EQ(tokenizer.decode(Ids{1, 2, 1}), "ab a");
  EXPECT_EQ(tokenizer.decode(Ids{0, 1}), "a");
  EXPECT_EQ(tokenizer.decode(Ids{0, 1}, false), "<s> a");
  EXPECT_EQ(tokenizer.decode(Ids{3, 1}), " a");
  EXPECT_EQ(tokenizer.decode(Ids{}), "");
}

TEST(Decoder, ByteTokensBecomeText) {
  const auto tokenizer = load(llama());
  EXPECT_EQ(tokenizer.decode(Ids{2, 4, 5, 6, 8, 2}), "b你Ab");
  EXPECT_EQ(tokenizer.decode(Ids{2, 4, 5, 2}), "b\uFFFD\uFFFDb") << "one for each byte";
  EXPECT_EQ(tokenizer.decode(Ids{8, 7}), "\uFFFD\uFFFD") << "one bad byte spoils its run";
}

TEST(Decoder, ByteLevelJoinsBytesOverTokens) {
  json tokenizer =
      with_decoder({"Ã", "©", "a", "Ġa", "â", "Ĥ"}, R"({"type":"ByteLevel","trim_offsets":true})");
  tokenizer["added_tokens"] = {added(6, "日")};
  const auto loaded = load(tokenizer);
  EXPECT_EQ(loaded.decode(Ids{2, 3, 0, 1}), "a aé");
  EXPECT_EQ(loaded.decode(Ids{0, 2}), "\uFFFDa");
  EXPECT_EQ(loaded.decode(Ids{4, 5}), "\uFFFD") << "one for a cut code point";
  EXPECT_EQ(loaded.decode(Ids{1, 1}), "\uFFFD\uFFFD");
  EXPECT_EQ(loaded.decode(Ids{6, 2}), "日a") << "not of the byte alphabet: stands for itself";
}

TEST(Decoder, MetaspaceDropsTheFirstSpaceUnlessItNeverPrepends) {
  const std::vector<std::string> tokens = {"▁a", "b"};
  const auto always = load(with_decoder(tokens, R"({"type":"Metaspace","replacement":"▁"})"));
  EXPECT_EQ(always.decode(Ids{0, 0, 1}), "a ab");
  const auto never = load(
      with_decoder(tokens, R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})"));
  EXPECT_EQ(never.decode(Ids{0, 0, 1}), " a ab");
}

TEST(Decoder, StripTakesFromEachTokenUnlessFused) {
  const std::vector<std::string> tokens = {"  a ", "b"};
  const auto each =
      load(with_decoder(tokens, R"({"type":"Strip","content":" ","start":1,"stop":1})"));
  EXPECT_EQ(each.decode(Ids{0, 1, 0}), " ab a");
  const auto fused = load(with_decoder(tokens, R"({"type":"Sequence","decoders":[{"type":"Fuse"},
                  {"type":"Strip","content":" ","start":2,"stop":1}]})"));
  EXPECT_EQ(fused.decode(Ids{0, 1, 0}), "a b  a");
}

TEST(Decoder, ReplaceBehindFuseSeesTheWholeText) {
  const auto tokenizer =
      load(with_decoder({"a", "b"}, R"({"type":"Sequence","decoders":[{"type":"Fuse"},
                      {"type":"Replace","pattern":{"String":"ab"},"content":"-"}]})"));
  EXPECT_EQ(tokenizer.decode(Ids{0, 1, 1}), "-b");
  EXPECT_EQ(stream(tokenizer, {0, 1, 1}), "-b");
}

TEST(Decoder, NoDecoderJoinsWithSpaces) {
  const auto tokenizer = load(document(bpe({"a", "b"})));
  EXPECT_EQ(tokenizer.decode(Ids{0, 1, 0}), "a b a");
  EXPECT_EQ(stream(tokenizer, {0, 1, 0}), "a b a");
}

TEST(Decoder, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(load_error(with_decoder({"a"}, R"({"type":"Sequence","decoders":[{"type":"CTC"}]})")),
              HasSubstr("decoder.decoders[0]: decoder 'CTC' is not supported"));
  EXPECT_THAT(
      load_error(with_decoder({"a"}, R"({"type":"Strip","content":"","start":1,"stop":0})")),
      HasSubstr("must be one character"));
  EXPECT_THAT(
      load_error(with_decoder({"a"}, R"({"type":"Strip","content":" ","start":-1,"stop":0})")),
      HasSubstr("decoder.start: must be a whole number"));
}

TEST(StreamDecoder, HandsOutWholeCodePointsAsSoonAsTheyAreThere) {
  engine::StreamDecoder decoder(load(llama()));
  EXPECT_EQ(decoder.push(0), "") << "special";
  EXPECT_EQ(decoder.push(1), "a");
  EXPECT_EQ(decoder.push(4), "");
  EXPECT_EQ(decoder.push(5), "");
  EXPECT_EQ(decoder.push(6), "你");
  EXPECT_EQ(decoder.push(8), "A") << "does not wait for the end of the run of bytes";
  EXPECT_EQ(decoder.push(1), " a");
  EXPECT_EQ(decoder.push(4), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

TEST(StreamDecoder, ByteLevelNeverSplitsACodePoint) {
  const auto tokenizer = load(with_decoder({"Ã", "©", "a"}, R"({"type":"ByteLevel"})"));
  engine::StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(0), "");
  EXPECT_EQ(decoder.push(1), "é");
  EXPECT_EQ(decoder.push(0), "");
  EXPECT_EQ(decoder.push(2), "\uFFFDa");
  EXPECT_EQ(decoder.push(0), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

TEST(StreamDecoder, ContextDecidesTheFirstSpaceAndIsNotGivenAgain) {
  const auto tokenizer = load(llama());
  engine::StreamDecoder alone(tokenizer);
  EXPECT_EQ(alone.push(1), "a");
  const Ids prompt = {0, 1};
  engine::StreamDecoder behind(tokenizer, prompt);
  EXPECT_EQ(behind.push(1), " a");
  engine::StreamDecoder shown(tokenizer, {}, false);
  EXPECT_EQ(shown.push(0), "<s>");
  EXPECT_EQ(shown.push(1), " a");
}

TEST(StreamDecoder, OutlivesTheTokenizerHandle) {
  auto tokenizer = std::make_unique<engine::Tokenizer>(load(llama()));
  engine::StreamDecoder decoder(*tokenizer);
  tokenizer.reset();
  engine::StreamDecoder moved = std::move(decoder);
  EXPECT_EQ(moved.push(1), "a");
}

}  // namespace
}  // namespace terrace::test
