// Added tokens: where they are found, their flags, their ids. Expected ids are those of Hugging
// Face's tokenizers 0.23.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine_tokenizer/model_files.hpp"

namespace terrace::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// a 0, b 1, space 2, é 3, then the added ones.
json with_added(std::initializer_list<json> tokens) {
  json tokenizer = document(bpe({"a", "b", " ", "é"}));
  for (const json& token : tokens) tokenizer["added_tokens"].push_back(token);
  return tokenizer;
}

TEST(AddedTokens, AreFoundInTheTextAndTheLongestWins) {
  const auto tokenizer = load(with_added({added(4, "<s"), added(5, "<s>"), added(6, "ab")}));
  EXPECT_THAT(tokenizer.encode("<s>a<sb"), ElementsAre(5, 0, 4, 1));
  EXPECT_THAT(tokenizer.encode("aab<s>"), ElementsAre(0, 6, 5));
  EXPECT_EQ(tokenizer.vocab_size(), 7U);
  EXPECT_EQ(tokenizer.token_to_id("<s>"), 5U);
  EXPECT_EQ(tokenizer.token_to_id("é"), 3U);
  EXPECT_EQ(tokenizer.token_to_id("nothing"), std::nullopt);
}

TEST(AddedTokens, LstripAndRstripTakeWhiteSpace) {
  const auto tokenizer = load(with_added(
      {added(4, "<l>", {{"lstrip", true}}), added(5, "<r>", {{"rstrip", true}}), added(6, "<n>")}));
  EXPECT_THAT(tokenizer.encode("a  <l> b"), ElementsAre(0, 4, 2, 1));
  EXPECT_THAT(tokenizer.encode("a <r>  b"), ElementsAre(0, 2, 5, 1));
  EXPECT_THAT(tokenizer.encode("a <n> b"), ElementsAre(0, 2, 6, 2, 1));
  EXPECT_THAT(tokenizer.encode("<r>  <l>"), ElementsAre(5, 4)) << "the white space is taken once";
  EXPECT_THAT(tokenizer.encode("a\u3000<l>"), ElementsAre(0, 4)) << "any Unicode white space";
}

TEST(AddedTokens, SingleWordsAreNotFoundWithinWords) {
  const auto tokenizer = load(with_added({added(4, "ab", {{"single_word", true}})}));
  EXPECT_THAT(tokenizer.encode("ab ab"), ElementsAre(4, 2, 4));
  EXPECT_THAT(tokenizer.encode("aab"), ElementsAre(0, 0, 1));
  EXPECT_THAT(tokenizer.encode("abé"), ElementsAre(0, 1, 3));
  EXPECT_THAT(tokenizer.encode("éab"), ElementsAre(3, 0, 1));
}

TEST(AddedTokens, NormalizedOnesAreFoundInTheNormalizedText) {
  json tokenizer = with_added({added(4, "e\u0301b", {{"normalized", true}}),
                               added(5, "e\u0301a", {{"normalized", false}})});
  tokenizer["normalizer"] = {{"type", "NFC"}};
  const auto loaded = load(tokenizer);
  EXPECT_THAT(loaded.encode("éb"), ElementsAre(4));
  EXPECT_THAT(loaded.encode("e\u0301b"), ElementsAre(4));
  EXPECT_THAT(loaded.encode("éa"), ElementsAre(3, 0)) << "this one is looked for in the raw text";
  EXPECT_THAT(loaded.encode("e\u0301a"), ElementsAre(5));
}

TEST(AddedTokens, SpecialOnesAreLeftOutOfDecodedText) {
  json tokenizer = with_added({added(4, "<s>", {{"special", true}}), added(5, "<tool>")});
  tokenizer["decoder"] = {{"type", "Fuse"}};
  const auto loaded = load(tokenizer);
  const Ids ids = {4, 0, 5, 1, 99};
  EXPECT_EQ(loaded.decode(ids), "a<tool>b");
  EXPECT_EQ(loaded.decode(ids, false), "<s>a<tool>b");
  EXPECT_TRUE(loaded.is_special(4));
  EXPECT_FALSE(loaded.is_special(5));
}

// Early Llama files have "<s>" normalized, which makes it "▁<s>" inside; it is left out all the
// same.
TEST(AddedTokens, SpecialOnesThatAreNormalizedAreLeftOutToo) {
  json tokenizer = with_added({added(4, "<s>", {{"special", true}, {"normalized", true}})});
  tokenizer["normalizer"] = {{"type", "Prepend"}, {"prepend", "b"}};
  tokenizer["decoder"] = {{"type", "Fuse"}};
  EXPECT_EQ(load(tokenizer).decode(Ids{4, 0}), "a");
}

TEST(AddedTokens, ATokenOfTheModelKeepsItsId) {
  const auto tokenizer = load(with_added({added(1, "b", {{"special", true}}), added(4, "<s>")}));
  EXPECT_THAT(tokenizer.encode("ab<s>"), ElementsAre(0, 1, 4));
  EXPECT_TRUE(tokenizer.is_special(1));
}

TEST(AddedTokens, RefusesIdsThatDoNotBelongTogether) {
  EXPECT_THAT(load_error(with_added({added(7, "<s>")})),
              HasSubstr("added_tokens[0]: added token '<s>' has id 7, but by the vocabulary"));
  EXPECT_THAT(load_error(with_added({added(0, "b")})), HasSubstr("it would get 1"));
  EXPECT_THAT(load_error(with_added({{{"id", 4}}})), HasSubstr("'content' is missing"));
  EXPECT_THAT(load_error(with_added({added(4, "<s>", {{"magic", true}})})), HasSubstr("'magic'"));
  json merging = with_added(
      {added(4, "e\u0301b", {{"normalized", true}}), added(5, "éb", {{"normalized", true}})});
  merging["normalizer"] = {{"type", "NFC"}};
  EXPECT_THAT(load_error(merging), HasSubstr("two added tokens are both 'éb' once normalized"));
}

TEST(AddedTokens, TokenizerConfigAddsTokensAndChangesFlags) {
  const json tokenizer = with_added({added(4, "<s>")});
  json config = {{"added_tokens_decoder",
                  {{"4", {{"content", "<s>"}, {"special", true}, {"lstrip", true}}},
                   {"5", {{"content", "<t>"}, {"special", true}}}}}};
  const auto loaded = load(tokenizer, config);
  EXPECT_THAT(loaded.encode("a <s><t>"), ElementsAre(0, 4, 5));
  EXPECT_TRUE(loaded.is_special(4));
  config["added_tokens_decoder"]["9"] = {{"content", "<u>"}};
  EXPECT_THAT(load_error(tokenizer, config), HasSubstr("added token '<u>' has id 9"));
  EXPECT_THAT(load_error(tokenizer, {{"added_tokens_decoder", {{"x", json::object()}}}}),
              HasSubstr("'x' is not a token id"));
}

}  // namespace
}  // namespace terrace::test
