// Text as it comes, and stop strings that lie across pieces.
#include "serve/answer_text.hpp"

#include <gtest/gtest.h>

namespace terrace::serve {
namespace {

// Pushes the bytes of `text` one token each, as the byte tokenizer has them. Returns: how many were
// wanted.
std::size_t push_all(AnswerText& answer, const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!answer.push(static_cast<unsigned char>(text[i]))) return i + 1;
  }
  return text.size();
}

TEST(AnswerText, WithoutStopStringsIsEverything) {
  const std::vector<std::string> none;
  AnswerText answer(engine::Tokenizer::bytes(), {}, none);
  EXPECT_EQ(push_all(answer, "h\xC3\xA9llo"), 6u);
  answer.finish();
  EXPECT_EQ(answer.text(), "h\xC3\xA9llo");
}

TEST(AnswerText, StopStringAcrossTokensEndsItAndIsNotPartOfIt) {
  const std::vector<std::string> stop = {"END", "never"};
  AnswerText answer(engine::Tokenizer::bytes(), {}, stop);
  EXPECT_EQ(push_all(answer, "to the EN ENDing"), 13u);
  answer.finish();
  EXPECT_EQ(answer.text(), "to the EN ");
}

TEST(AnswerText, FirstOfTwoStopStringsCuts) {
  const std::vector<std::string> stop = {"cd", "bcd"};
  AnswerText answer(engine::Tokenizer::bytes(), {}, stop);
  EXPECT_EQ(push_all(answer, "abcd"), 4u);
  EXPECT_EQ(answer.text(), "a");
}

TEST(AnswerText, HalfACodePointAtTheEndBecomesAReplacement) {
  const std::vector<std::string> none;
  AnswerText answer(engine::Tokenizer::bytes(), {}, none);
  push_all(answer, "a\xC3");
  EXPECT_EQ(answer.text(), "a");
  answer.finish();
  EXPECT_EQ(answer.text(), "a\xEF\xBF\xBD");
}

TEST(AnswerText, StopIsNotFoundInThePrompt) {
  const std::vector<std::string> stop = {"ab"};
  const std::vector<std::uint32_t> prompt = {'a', 'b', 'a'};
  AnswerText answer(engine::Tokenizer::bytes(), prompt, stop);
  EXPECT_EQ(push_all(answer, "bxab"), 4u);
  EXPECT_EQ(answer.text(), "bx");
}

}  // namespace
}  // namespace terrace::serve
