// Oniguruma's syntax on PCRE2: where the two differ, the matches must be Oniguruma's. Expected
// splits were compared with Hugging Face's tokenizers 0.23.
#include "engine/tokenizer/pattern.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tokenizer/oniguruma.hpp"

namespace terrace::engine {
namespace {

// `text` with each match in brackets.
std::string marked(const std::string& pattern, const std::string& text) {
  std::string marks;
  for (const Span& span : Pattern::regex(pcre2_from_oniguruma(pattern)).find(text)) {
    const std::string part = text.substr(span.begin, span.end - span.begin);
    marks += span.is_match ? "[" + part + "]" : part;
  }
  return marks;
}

TEST(Pattern, WhiteSpaceIsThePropertyWhiteSpace) {
  EXPECT_EQ(marked(R"(\s)", "a\u0085b\u180Ec\u3000"), "a[\u0085]b\u180Ec[\u3000]");
  EXPECT_EQ(marked(R"([^\s]+)", "a\u0085b\u180Ec"), "[a]\u0085[b\u180Ec]");
  EXPECT_EQ(marked(R"(\S+)", "ab c"), "[ab] [c]");
}

TEST(Pattern, WordCharacters) {
  EXPECT_EQ(marked(R"(\w+)", "a_1‿é-½"), "[a_1‿é]-[½]");
  EXPECT_EQ(marked(R"([\w]+)", "a½"), "[a]½") << "Latin-1 fractions count outside a class only";
  EXPECT_EQ(marked(R"(\W)", "a-b"), "a[-]b");
  EXPECT_EQ(marked(R"(\bb)", "ab b"), "ab [b]");
  EXPECT_EQ(marked(R"(\Bb)", "ab b"), "a[b] b");
}

TEST(Pattern, OtherEscapes) {
  EXPECT_EQ(marked(R"(\h+)", "xfA9g"), "x[fA9]g");
  EXPECT_EQ(marked(R"(\v)", "a\n\x0B"), "a\n[\x0B]");
  EXPECT_EQ(marked(R"(\u00e9|\x{4F60})", "é你"), "[é][你]");
  EXPECT_EQ(marked(R"(\p{Han}+)", "你々。a"), "[你々]。a");
  EXPECT_EQ(marked(R"(\p{^L}+)", "a12b"), "a[12]b");
}

TEST(Pattern, Quantifiers) {
  EXPECT_EQ(marked(R"(\p{N}{1,3}+)", "12345a"), "[12345]a") << "repeated, not possessive";
  EXPECT_EQ(marked(R"((?:ab){2}+)", "abababab"), "[abababab]");
  EXPECT_EQ(marked(R"(a{,2})", "aab"), "[aa]b[]");
  EXPECT_EQ(marked(R"(a++b|a)", "aab"), "[aab]");
  EXPECT_EQ(marked("a{b", "a{b"), "[a{b]");
}

TEST(Pattern, LinesAndOptions) {
  EXPECT_EQ(marked("^a|b$", "a\na\nb\nb"), "[a]\n[a]\n[b]\n[b]");
  EXPECT_EQ(marked("a.b", "a\nb"), "a\nb");
  EXPECT_EQ(marked("(?m:a.b)", "a\nb"), "[a\nb]");
  EXPECT_EQ(marked("(?i:'s)", "'S'ſ"), "['S]['ſ]");
  EXPECT_EQ(marked("(?i)ab", "aB"), "[aB]");
}

TEST(Pattern, EmptyMatchesCutWithoutTakingText) {
  EXPECT_EQ(marked("(?=b)", "abab"), "a[]ba[]b");
  EXPECT_EQ(marked("b*", "abba"), "[]a[bb]a[]");
}

TEST(Pattern, RefusesWhatIsNotTranslated) {
  for (const char* pattern :
       {"[a[b]]", "[a&&b]", "[[:alpha:]]", "(?<name>a)", "(?x:a b)", "a(?i)b", R"(\k<a>)", R"(\G)",
        R"([\W])", R"(\pL)", R"(\u12)", "a\\", "[a", "a{2}?", "(?P<n>a)", "(?#c)"}) {
    EXPECT_THROW(pcre2_from_oniguruma(pattern), PatternError) << pattern;
  }
  for (const char* pattern : {"(", "a)", R"(\p{Nonsense})", "*"}) {
    EXPECT_THROW(Pattern::regex(pcre2_from_oniguruma(pattern)), PatternError) << pattern;
  }
}

// Deep backtracking outgrows the just-in-time compiler's stack; the interpreter takes over.
TEST(Pattern, DeepBacktrackingDoesNotFail) {
  const std::string text = std::string(20'000, 'a') + "c";
  EXPECT_EQ(marked("(?:a|a)+c", text), "[" + text + "]");
}

}  // namespace
}  // namespace terrace::engine
