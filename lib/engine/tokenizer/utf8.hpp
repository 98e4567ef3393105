// UTF-8 scanning for the tokenizer: everything behind Tokenizer::encode() may assume valid UTF-8,
// and this is where that becomes true. Never throws, never reads past the view it is given. Called
// by all files of this folder. Stateless.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace terrace::engine::utf8 {

inline constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Kind {
  valid,       // `length` bytes are one code point
  invalid,     // `length` bytes are a maximal ill-formed part: one U+FFFD stands for all of them
  incomplete,  // all bytes are the beginning of a code point whose rest is missing
};

struct Scan {
  Kind kind;
  std::size_t length;  // bytes
};

// What stands at the beginning of `bytes`. REQUIRES: `bytes` is not empty.
Scan scan(std::string_view bytes);

// `text` with every maximal ill-formed part replaced by one U+FFFD (as the WHATWG encoding standard
// does).
std::string sanitize(std::string_view text);

// Length in bytes of the code point that begins with `lead`. REQUIRES: valid UTF-8.
inline std::size_t length_of(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point at the beginning of `text`. REQUIRES: valid UTF-8, not empty.
char32_t decode(std::string_view text);

void append(std::string& text, char32_t code_point);

// Byte offset at which the last code point of `text` begins. REQUIRES: valid UTF-8, not empty.
std::size_t last_begin(std::string_view text);

// The Unicode property White_Space.
bool is_white_space(char32_t code_point);

// Bytes of white space at the beginning, and at the end, of `text`. REQUIRES: valid UTF-8.
std::size_t leading_white_space(std::string_view text);
std::size_t trailing_white_space(std::string_view text);

}  // namespace terrace::engine::utf8
