// See byte_alphabet.hpp. Bytes that print in Latin-1 stand for themselves; the other 68 take U+0100
// and up, in order.
#include "engine/tokenizer/byte_alphabet.hpp"

#include <array>

#include "engine/tokenizer/utf8.hpp"

namespace terrace::engine::byte_alphabet {
namespace {

constexpr std::size_t alphabet_end = 0x100 + 68;  // one past the highest code point of the alphabet

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> make_code_points() {
  std::array<char32_t, 256> code_points{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    code_points[byte] = stands_for_itself(byte) ? byte : next++;
  }
  return code_points;
}

constexpr std::array<std::int16_t, alphabet_end> make_bytes() {
  std::array<std::int16_t, alphabet_end> bytes{};
  bytes.fill(-1);
  const auto code_points = make_code_points();
  for (unsigned byte = 0; byte < 256; ++byte) {
    bytes[code_points[byte]] = static_cast<std::int16_t>(byte);
  }
  return bytes;
}

std::array<std::string, 256> make_symbols() {
  std::array<std::string, 256> symbols;
  const auto code_points = make_code_points();
  for (unsigned byte = 0; byte < 256; ++byte) utf8::append(symbols[byte], code_points[byte]);
  return symbols;
}

}  // namespace

std::string_view symbol_of(std::uint8_t byte) {
  static const std::array<std::string, 256> symbols = make_symbols();
  return symbols[byte];
}

std::optional<std::uint8_t> byte_of(char32_t code_point) {
  static constexpr auto bytes = make_bytes();
  if (code_point >= bytes.size() || bytes[code_point] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(bytes[code_point]);
}

std::string encode(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) text += symbol_of(static_cast<std::uint8_t>(byte));
  return text;
}

}  // namespace terrace::engine::byte_alphabet
