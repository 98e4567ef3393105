// tokenizer.json holds regular expressions in Oniguruma's Ruby syntax; we match with PCRE2. This
// turns the one into the other where the two read the same text differently, and refuses what it
// cannot turn: a pattern that splits a prompt differently would give other token ids without a
// word. Pure function, called while a tokenizer is loaded.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace terrace::engine {

class PatternError : public std::runtime_error {
 public:
  explicit PatternError(const std::string& what) : std::runtime_error(what) {}
};

// The PCRE2 pattern (for PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE) that matches what `pattern`
// matches in Oniguruma. Throws PatternError where there is a construct that is not translated.
std::string pcre2_from_oniguruma(std::string_view pattern);

// What Rust's regex crate takes for a word character, as the inside of a PCRE2 character class:
// Hugging Face's added tokens and its Whitespace go by it.
inline constexpr std::string_view rust_word_class =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";

}  // namespace terrace::engine
