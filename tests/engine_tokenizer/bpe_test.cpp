// The model of a tokenizer: merges in both spellings, order of merging, unknown characters, byte
// fallback, ignore_merges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine_tokenizer/model_files.hpp"

namespace terrace::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Bpe, BothSpellingsOfMergesGiveTheSameIds) {
  const std::vector<std::string> tokens = {"a", "b", "c", "ab", "abc"};
  const auto strings = load(document(bpe(tokens, {"a b", "ab c"})));
  const auto arrays =
      load(document(bpe(tokens, json::array({json::array({"a", "b"}), json::array({"ab", "c"})}))));
  for (const auto* tokenizer : {&strings, &arrays}) {
    EXPECT_THAT(tokenizer->encode("abc"), ElementsAre(4));
    EXPECT_THAT(tokenizer->encode("abab"), ElementsAre(3, 3));
    EXPECT_THAT(tokenizer->encode("cba"), ElementsAre(2, 1, 0));
    EXPECT_THAT(tokenizer->encode(""), IsEmpty());
  }
}

TEST(Bpe, ArraysMayHoldTokensWithSpaces) {
  const auto tokenizer =
      load(document(bpe({"a", " ", "a "}, json::array({json::array({"a", " "})}))));
  EXPECT_THAT(tokenizer.encode("a a"), ElementsAre(2, 0));
}

TEST(Bpe, VersionLinesAmongMergesDoNotCount) {
  const auto tokenizer = load(document(bpe({"a", "b", "ab"}, {"#version: 0.2", "a b"})));
  EXPECT_THAT(tokenizer.encode("ab"), ElementsAre(2));
}

// By rank, not from the left: "bc" first leaves the "a" alone, though "ab" would have come first in
// the text.
TEST(Bpe, TheLowestRankMergesFirst) {
  const auto tokenizer = load(document(bpe({"a", "b", "c", "ab", "bc"}, {"b c", "a b"})));
  EXPECT_THAT(tokenizer.encode("abc"), ElementsAre(0, 4));
}

TEST(Bpe, EqualRanksMergeFromTheLeft) {
  const auto tokenizer = load(document(bpe({"a", "aa"}, {"a a"})));
  EXPECT_THAT(tokenizer.encode("aaaaa"), ElementsAre(1, 1, 0));
}

// The piece falls apart between characters that no merge joins; every way to cut must give what
// merging the whole gives.
TEST(Bpe, MergesReachAcrossWhereTheyCan) {
  const auto tokenizer = load(document(
      bpe({"a", "b", "c", "d", "bc", "abc", "abcd", "da"}, {"b c", "d a", "a bc", "abc d"})));
  EXPECT_THAT(tokenizer.encode("abcd"), ElementsAre(6));
  EXPECT_THAT(tokenizer.encode("abcdabcd"), ElementsAre(5, 7, 4, 3));
  EXPECT_THAT(tokenizer.encode("acbd"), ElementsAre(0, 2, 1, 3));
}

TEST(Bpe, UnknownCharactersFuseOrNot) {
  json model = bpe({"<unk>", "a"});
  model["unk_token"] = "<unk>";
  EXPECT_THAT(load(document(model)).encode("axya"), ElementsAre(1, 0, 0, 1));
  model["fuse_unk"] = true;
  EXPECT_THAT(load(document(model)).encode("axyaz"), ElementsAre(1, 0, 1, 0));
}

TEST(Bpe, UnknownCharactersVanishWithoutAnUnknownToken) {
  EXPECT_THAT(load(document(bpe({"a"}))).encode("xax"), ElementsAre(0));
}

TEST(Bpe, ByteFallbackTakesTheBytesOfAnUnknownCharacter) {
  json model = bpe({"<unk>", "a", "<0xC3>", "<0xA9>"});
  model["unk_token"] = "<unk>";
  model["fuse_unk"] = true;
  model["byte_fallback"] = true;
  const auto tokenizer = load(document(model));
  EXPECT_THAT(tokenizer.encode("aéa"), ElementsAre(1, 2, 3, 1));
  EXPECT_THAT(tokenizer.encode("aèa"), ElementsAre(1, 0, 1)) << "byte A8 has no token";
}

// A merge of byte tokens reaches across characters in a way that their texts do not show.
TEST(Bpe, ByteTokensMayMerge) {
  json model = bpe({"<0xC3>", "<0xA9>", "<0xC3><0xA9>", "a"}, {"<0xC3> <0xA9>"});
  model["byte_fallback"] = true;
  EXPECT_THAT(load(document(model)).encode("aé"), ElementsAre(3, 2));
}

TEST(Bpe, IgnoreMergesTakesAWholePieceFromTheVocabulary) {
  json model = bpe({"a", "b", "c", "abc", "bc"}, {"b c"});
  EXPECT_THAT(load(document(model)).encode("abc"), ElementsAre(0, 4));
  model["ignore_merges"] = true;
  EXPECT_THAT(load(document(model)).encode("abc"), ElementsAre(3));
  EXPECT_THAT(load(document(model)).encode("abca"), ElementsAre(0, 4, 0));
}

// Quadratic merging would take minutes.
TEST(Bpe, ALongPieceIsFast) {
  const auto tokenizer = load(document(bpe({"a", "aa", "aaaa"}, {"a a", "aa aa"})));
  EXPECT_EQ(tokenizer.encode(std::string(1'000'000, 'a')), Ids(250'000, 2));
}

TEST(Bpe, RefusesWhatItCannotRead) {
  json model = bpe({"a", "b", "ab"}, {"a b"});
  model["type"] = "Unigram";
  EXPECT_THAT(load_error(document(model)),
              HasSubstr("model: model type 'Unigram' is not supported"));
  model = bpe({"a"});
  model["dropout"] = 0.1;
  EXPECT_THAT(load_error(document(model)), HasSubstr("dropout"));
  model = bpe({"a"});
  model["end_of_word_suffix"] = "</w>";
  EXPECT_THAT(load_error(document(model)), HasSubstr("end_of_word_suffix is not supported"));
  model = bpe({"a"});
  model["surprise"] = 1;
  EXPECT_THAT(load_error(document(model)), HasSubstr("'surprise' is not a setting"));
  model = bpe({"a"});
  model["unk_token"] = "<unk>";
  EXPECT_THAT(load_error(document(model)), HasSubstr("unk_token '<unk>' is not in the vocabulary"));
}

TEST(Bpe, ReadsFilesFromBeforeTheTypeWasWritten) {
  json model = bpe({"a", "b", "ab"}, {"a b"});
  model.erase("type");
  model["unk_token"] = "";
  model["continuing_subword_prefix"] = "";
  EXPECT_THAT(load(document(model)).encode("ab"), ElementsAre(2));
}

TEST(Bpe, RefusesBadIds) {
  json model = bpe({"a", "b"});
  model["vocab"]["b"] = 0;
  EXPECT_THAT(load_error(document(model)), HasSubstr("tokens 'a' and 'b' have the same id 0"));
  for (const json& id : {json(-1), json(1.5), json("1"), json(1U << 24), json(1LL << 40), json()}) {
    model["vocab"]["b"] = id;
    EXPECT_THAT(load_error(document(model)), HasSubstr("the id of token 'b' must be")) << id;
  }
  model["vocab"] = json::array();
  EXPECT_THAT(load_error(document(model)), HasSubstr("model.vocab: must be an object"));
}

TEST(Bpe, RefusesBadMerges) {
  const std::vector<std::string> tokens = {"a", "b", "c", "ab"};
  EXPECT_THAT(load_error(document(bpe(tokens, {"a b", "x b"}))),
              HasSubstr("merge 1 of 'x' and 'b' needs token 'x', which is not in the vocabulary"));
  EXPECT_THAT(load_error(document(bpe(tokens, {"a c"}))), HasSubstr("needs token 'ac'"));
  EXPECT_THAT(load_error(document(bpe(tokens, {"ab"}))),
              HasSubstr("merge 0 'ab' is not two tokens"));
  EXPECT_THAT(load_error(document(bpe(tokens, {"a b c"}))), HasSubstr("is not two tokens"));
  EXPECT_THAT(load_error(document(bpe(tokens, {1}))), HasSubstr("merge 0 is neither"));
  EXPECT_THAT(load_error(document(bpe(tokens, json::array({json::array({"a"})})))),
              HasSubstr("merge 0 is neither"));
  EXPECT_THAT(load_error(document(bpe(tokens, "a b"))),
              HasSubstr("model.merges: must be an array"));
}

}  // namespace
}  // namespace terrace::test
