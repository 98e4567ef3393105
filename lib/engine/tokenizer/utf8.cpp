// See utf8.hpp.
#include "engine/tokenizer/utf8.hpp"

#include <algorithm>

namespace terrace::engine::utf8 {
namespace {

unsigned char byte_at(std::string_view bytes, std::size_t position) {
  return static_cast<unsigned char>(bytes[position]);
}

// Length that `lead` announces, 0 where no code point can begin with it.
std::size_t announced_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // continuation bytes; 0xC0 and 0xC1 would be overlong
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;  // 0xF5 and up would pass U+10FFFF
}

// The second byte's range is narrower after some lead bytes: no overlong forms, no surrogates,
// nothing past U+10FFFF.
bool second_byte_fits(unsigned char lead, unsigned char second) {
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  return second >= low && second <= high;
}

}  // namespace

Scan scan(std::string_view bytes) {
  const unsigned char lead = byte_at(bytes, 0);
  const std::size_t length = announced_length(lead);
  if (length == 0) return {Kind::invalid, 1};
  const std::size_t present = std::min(length, bytes.size());
  for (std::size_t i = 1; i < present; ++i) {
    const unsigned char next = byte_at(bytes, i);
    const bool fits = i == 1 ? second_byte_fits(lead, next) : (next & 0xC0) == 0x80;
    if (!fits) return {Kind::invalid, i};
  }
  return {present == length ? Kind::valid : Kind::incomplete, present};
}

std::string sanitize(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Scan next = scan(text.substr(at));
    clean += next.kind == Kind::valid ? text.substr(at, next.length) : replacement;
    at += next.length;
  }
  return clean;
}

char32_t decode(std::string_view text) {
  const std::size_t length = length_of(text[0]);
  if (length == 1) return byte_at(text, 0);
  char32_t code_point = byte_at(text, 0) & (0xFF >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code_point = code_point << 6 | (byte_at(text, i) & 0x3F);
  return code_point;
}

void append(std::string& text, char32_t code_point) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | (code_point >> shift & 0x3F));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::size_t last_begin(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (byte_at(text, at) & 0xC0) == 0x80) --at;
  return at;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::size_t leading_white_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is_white_space(decode(text.substr(at)))) at += length_of(text[at]);
  return at;
}

std::size_t trailing_white_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t begin = last_begin(text.substr(0, end));
    if (!is_white_space(decode(text.substr(begin)))) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace terrace::engine::utf8
