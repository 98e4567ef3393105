// What happens to a text before and behind the model: normalizers, pre-tokenizers, post-processors.
// Each test would fail if the step were left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine_tokenizer/model_files.hpp"

namespace terrace::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Every character is a token and nothing merges, so that the ids show the normalized text.
json characters(const std::string& normalizer) {
  json tokenizer = document(bpe({"a", "b", " ", "▁", "é", "e", "\u0301", "f", "i", "ﬁ"}));
  tokenizer["normalizer"] = json::parse(normalizer);
  return tokenizer;
}

TEST(Normalizer, PrependLeavesAnEmptyTextAlone) {
  const auto tokenizer = load(characters(R"({"type":"Prepend","prepend":"▁"})"));
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(3, 0, 1));
  EXPECT_THAT(tokenizer.encode(""), ElementsAre());
}

TEST(Normalizer, ReplaceByTextAndByRegex) {
  const auto by_text =
      load(characters(R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})"));
  EXPECT_THAT(by_text.encode("a  b"), ElementsAre(0, 3, 3, 1));
  const auto by_regex =
      load(characters(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":"▁"})"));
  EXPECT_THAT(by_regex.encode("a   b a"), ElementsAre(0, 3, 1, 2, 0));
}

TEST(Normalizer, UnicodeForms) {
  EXPECT_THAT(load(characters(R"({"type":"NFC"})")).encode("e\u0301ﬁ"), ElementsAre(4, 9));
  EXPECT_THAT(load(characters(R"({"type":"NFD"})")).encode("éﬁ"), ElementsAre(5, 6, 9));
  EXPECT_THAT(load(characters(R"({"type":"NFKC"})")).encode("e\u0301ﬁ"), ElementsAre(4, 7, 8));
  EXPECT_THAT(load(characters(R"({"type":"NFKD"})")).encode("éﬁ"), ElementsAre(5, 6, 7, 8));
}

// The library's own ordering of marks takes quadratic time; ours must not.
TEST(Normalizer, ALongRunOfMarksIsOrderedFast) {
  const auto tokenizer = load(characters(R"({"type":"NFC"})"));
  std::string text = "e";
  for (int i = 0; i < 250'000; ++i) text += "\u0301\u0316";
  // Marks below (U+0316) sort before marks above, which does not keep the first of those from
  // joining the e.
  const Ids ids = tokenizer.encode(text);
  EXPECT_EQ(ids, Ids([] {
              Ids expected(250'000, 6);
              expected[0] = 4;
              return expected;
            }()))
      << "U+0316 has no token, so that é and the other U+0301 remain";
}

TEST(Normalizer, StripAndSequence) {
  const auto tokenizer = load(characters(
      R"({"type":"Sequence","normalizers":[{"type":"Strip","strip_left":true,"strip_right":false},
          {"type":"Prepend","prepend":"▁"}]})"));
  EXPECT_THAT(tokenizer.encode("  a "), ElementsAre(3, 0, 2));
}

TEST(Normalizer, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(
      load_error(characters(R"({"type":"Sequence","normalizers":[{"type":"Nmt"}]})")),
      HasSubstr("tokenizer.json: normalizer.normalizers[0]: normalizer 'Nmt' is not supported"));
  EXPECT_THAT(load_error(characters(R"({"prepend":"x"})")), HasSubstr("'type' is missing"));
  EXPECT_THAT(load_error(characters(R"({"type":"NFC","extra":1})")), HasSubstr("'extra'"));
  EXPECT_THAT(load_error(characters(R"({"type":"Replace","pattern":{"Regex":"("},"content":""})")),
              HasSubstr("does not compile"));
  EXPECT_THAT(load_error(characters(R"({"type":"Replace","pattern":{"String":""},"content":""})")),
              HasSubstr("the pattern is empty"));
  json nested = {{"type", "NFC"}};
  for (int i = 0; i < 40; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  EXPECT_THAT(load_error(characters(nested.dump())), HasSubstr("nested too deeply"));
}

// With ignore_merges a piece that is in the vocabulary is one token though no merge makes it, so
// that ids show the pieces.
json whole_pieces(const std::vector<std::string>& tokens, const std::string& pre_tokenizer) {
  json model = bpe(tokens);
  model["ignore_merges"] = true;
  json tokenizer = document(model);
  tokenizer["pre_tokenizer"] = json::parse(pre_tokenizer);
  return tokenizer;
}

TEST(PreTokenizer, SplitBehaviours) {
  const std::vector<std::string> tokens = {"a", "-", "aa", "aa-", "-aa", "--", "aa--"};
  const auto ids = [&](const std::string& behavior, bool invert = false) {
    const json split = {{"type", "Split"},
                        {"pattern", {{"String", "-"}}},
                        {"behavior", behavior},
                        {"invert", invert}};
    return load(whole_pieces(tokens, split.dump())).encode("aa--aa");
  };
  EXPECT_THAT(ids("Isolated"), ElementsAre(2, 1, 1, 2));
  EXPECT_THAT(ids("Removed"), ElementsAre(2, 2));
  EXPECT_THAT(ids("MergedWithPrevious"), ElementsAre(3, 1, 2));
  EXPECT_THAT(ids("MergedWithNext"), ElementsAre(2, 1, 4));
  EXPECT_THAT(ids("Contiguous"), ElementsAre(2, 5, 2));
  EXPECT_THAT(ids("Removed", true), ElementsAre(1, 1));
}

TEST(PreTokenizer, ByteLevelWithItsRegexAndPrefixSpace) {
  const std::vector<std::string> tokens = {"Ġ", "a", "Ġa", "'s", "Ã©", "Ã", "©", "1", "Ġ1"};
  const auto plain = load(whole_pieces(
      tokens,
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})"));
  EXPECT_THAT(plain.encode("a's a1 1"), ElementsAre(1, 3, 2, 7, 8));
  EXPECT_THAT(plain.encode("é"), ElementsAre(4));
  EXPECT_THAT(plain.encode("  a"), ElementsAre(0, 2)) << "the last space goes with the word";
  const auto prefixed =
      load(whole_pieces(tokens, R"({"type":"ByteLevel","add_prefix_space":true})"));
  EXPECT_THAT(prefixed.encode("a a"), ElementsAre(2, 2));
  EXPECT_THAT(prefixed.encode(" a"), ElementsAre(2));
  const auto whole = load(whole_pieces(
      {"a", "Ġ", "aĠa"}, R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})"));
  EXPECT_THAT(whole.encode("a a"), ElementsAre(2));
}

TEST(PreTokenizer, MetaspaceSchemes) {
  const std::vector<std::string> tokens = {"▁", "a", "▁a", "▁a▁a", "<s>"};
  const auto ids = [&](const std::string& settings, const std::string& text) {
    json tokenizer =
        whole_pieces(tokens, R"({"type":"Metaspace","replacement":"▁")" + settings + "}");
    tokenizer["added_tokens"] = {added(4, "<s>")};
    return load(tokenizer).encode(text);
  };
  EXPECT_THAT(ids(R"(,"prepend_scheme":"always")", "a<s>a a"), ElementsAre(2, 4, 2, 2));
  EXPECT_THAT(ids(R"(,"prepend_scheme":"first")", "a<s>a a"), ElementsAre(2, 4, 1, 2));
  EXPECT_THAT(ids(R"(,"prepend_scheme":"first")", "<s>a"), ElementsAre(4, 1));
  EXPECT_THAT(ids(R"(,"prepend_scheme":"never")", "a a"), ElementsAre(1, 2));
  EXPECT_THAT(ids(R"(,"prepend_scheme":"always","split":false)", "a a"), ElementsAre(3));
  EXPECT_THAT(ids(R"(,"add_prefix_space":true)", " a"), ElementsAre(2)) << "not twice";
  EXPECT_THAT(ids(R"(,"add_prefix_space":false)", "a"), ElementsAre(1)) << "the old spelling";
}

TEST(PreTokenizer, MetaspaceRefusesContradictions) {
  const auto error = [](const std::string& settings) {
    return load_error(whole_pieces({"a"}, R"({"type":"Metaspace")" + settings + "}"));
  };
  EXPECT_THAT(error(R"(,"replacement":"▁","add_prefix_space":false,"prepend_scheme":"always")"),
              HasSubstr("add_prefix_space is false"));
  EXPECT_THAT(error(R"(,"replacement":"▁","prepend_scheme":"last")"), HasSubstr("'last'"));
  EXPECT_THAT(error(R"(,"replacement":"__")"), HasSubstr("must be one character"));
}

TEST(PreTokenizer, DigitsPunctuationWhitespace) {
  const std::vector<std::string> tokens = {"1", "2", "12", "a", "!", "!!", "a!", "²"};
  EXPECT_THAT(
      load(whole_pieces(tokens, R"({"type":"Digits","individual_digits":false})")).encode("a12²"),
      ElementsAre(3, 0, 1, 7));
  EXPECT_THAT(
      load(whole_pieces(tokens, R"({"type":"Digits","individual_digits":false})")).encode("a12a"),
      ElementsAre(3, 2, 3));
  EXPECT_THAT(
      load(whole_pieces(tokens, R"({"type":"Digits","individual_digits":true})")).encode("12"),
      ElementsAre(0, 1));
  EXPECT_THAT(load(whole_pieces(tokens, R"({"type":"Punctuation"})")).encode("a!!"),
              ElementsAre(3, 4, 4));
  EXPECT_THAT(
      load(whole_pieces(tokens, R"({"type":"Punctuation","behavior":"Contiguous"})")).encode("a!!"),
      ElementsAre(3, 5));
  EXPECT_THAT(load(whole_pieces(tokens, R"({"type":"WhitespaceSplit"})")).encode("a!\u3000 12"),
              ElementsAre(6, 2));
  EXPECT_THAT(load(whole_pieces(tokens, R"({"type":"Whitespace"})")).encode(" a!! 12 "),
              ElementsAre(3, 5, 2));
}

TEST(PreTokenizer, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(load_error(whole_pieces({"a"}, R"({"type":"UnicodeScripts"})")),
              HasSubstr("pre_tokenizer: pre-tokenizer 'UnicodeScripts' is not supported"));
  EXPECT_THAT(load_error(whole_pieces({"a"}, R"({"type":"Split","pattern":{"Regex":"[a[b]]"},
                                                 "behavior":"Isolated","invert":false})")),
              HasSubstr("a character class within a character class"));
  EXPECT_THAT(load_error(whole_pieces({"a"}, R"({"type":"Split","pattern":{"Regex":"a"},
                                                 "behavior":"Sideways","invert":false})")),
              HasSubstr("'Sideways' is not one of"));
}

json template_of(const std::string& single) {
  return {{"type", "TemplateProcessing"},
          {"single", json::parse(single)},
          {"pair", json::array()},
          {"special_tokens",
           {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}},
            {"</s>", {{"id", "</s>"}, {"ids", {2}}, {"tokens", {"</s>"}}}}}}};
}

constexpr const char* bos_and_eos =
    R"([{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
        {"SpecialToken":{"id":"</s>","type_id":0}}])";

TEST(PostProcessor, TemplatePutsSpecialTokensAround) {
  json tokenizer = document(bpe({"a", "<s>", "</s>"}));
  tokenizer["post_processor"] = template_of(bos_and_eos);
  EXPECT_THAT(load(tokenizer).encode("a"), ElementsAre(1, 0, 2));
  EXPECT_THAT(load(tokenizer).encode(""), ElementsAre(1, 2));
  EXPECT_THAT(load(tokenizer).encode("a", false), ElementsAre(0));
  tokenizer["post_processor"] = {
      {"type", "Sequence"},
      {"processors", {{{"type", "ByteLevel"}, {"trim_offsets", true}}, template_of(bos_and_eos)}}};
  EXPECT_THAT(load(tokenizer).encode("a"), ElementsAre(1, 0, 2));
}

TEST(PostProcessor, RefusesWhatItDoesNotKnow) {
  json tokenizer = document(bpe({"a"}));
  tokenizer["post_processor"] = {{"type", "RobertaProcessing"}};
  EXPECT_THAT(load_error(tokenizer),
              HasSubstr("post-processor 'RobertaProcessing' is not supported"));
  tokenizer["post_processor"] = template_of(R"([{"SpecialToken":{"id":"<x>","type_id":0}}])");
  EXPECT_THAT(load_error(tokenizer), HasSubstr("special token '<x>' of the template is missing"));
  tokenizer["post_processor"] = template_of("[]");
  EXPECT_THAT(load_error(tokenizer), HasSubstr("sequence 'A' must stand in the template once"));
}

// transformers' Llama class builds the template anew from these flags; other classes leave it
// alone.
TEST(PostProcessor, TokenizerConfigFlagsCountForTheClassesThatReadThem) {
  json tokenizer = document(bpe({"a", "<s>", "</s>"}));
  json config = {{"tokenizer_class", "LlamaTokenizerFast"},
                 {"bos_token", "<s>"},
                 {"eos_token", {{"content", "</s>"}, {"lstrip", false}}},
                 {"add_bos_token", true},
                 {"add_eos_token", true}};
  EXPECT_THAT(load(tokenizer, config).encode("a"), ElementsAre(1, 0, 2));
  tokenizer["post_processor"] = template_of(bos_and_eos);
  config["add_bos_token"] = false;
  config.erase("add_eos_token");
  EXPECT_THAT(load(tokenizer, config).encode("a"), ElementsAre(0, 2));
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  EXPECT_THAT(load(tokenizer, config).encode("a"), ElementsAre(1, 0, 2));
  config = {{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", true}};
  EXPECT_THAT(load_error(tokenizer, config),
              HasSubstr("add_bos_token: is true, but the file does not name the token"));
}

}  // namespace
}  // namespace terrace::test
