// UTF-8: every code point round trips, ill-formed parts are found as the standard cuts them.
#include "engine/tokenizer/utf8.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tokenizer/byte_alphabet.hpp"

namespace terrace::engine {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string text;
    utf8::append(text, code_point);
    const utf8::Scan scan = utf8::scan(text);
    ASSERT_EQ(scan.kind, utf8::Kind::valid);
    ASSERT_EQ(scan.length, text.size());
    ASSERT_EQ(utf8::decode(text), code_point);
    ASSERT_EQ(utf8::length_of(text[0]), text.size());
    if (text.size() == 1) continue;
    ASSERT_EQ(utf8::scan(text.substr(0, text.size() - 1)).kind, utf8::Kind::incomplete);
  }
}

TEST(Utf8, SanitizeReplacesMaximalIllFormedParts) {
  EXPECT_EQ(utf8::sanitize("plain é 你 🦙"), "plain é 你 🦙");
  EXPECT_EQ(utf8::sanitize("\x80"), "\uFFFD");
  EXPECT_EQ(utf8::sanitize("\xC0\xAF"), "\uFFFD\uFFFD") << "overlong";
  EXPECT_EQ(utf8::sanitize("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD") << "overlong";
  EXPECT_EQ(utf8::sanitize("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD") << "surrogate";
  EXPECT_EQ(utf8::sanitize("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD") << "past U+10FFFF";
  EXPECT_EQ(utf8::sanitize("\xF0\x9F\xA6x"), "\uFFFDx") << "one for a cut code point";
  EXPECT_EQ(utf8::sanitize("\xE4\xBD"), "\uFFFD");
  EXPECT_EQ(utf8::sanitize("\xE4\xE4\xBD\xA0"), "\uFFFD你");
  EXPECT_EQ(utf8::sanitize(std::string_view("\0", 1)), std::string_view("\0", 1));
}

TEST(Utf8, WhiteSpaceAtTheEnds) {
  EXPECT_EQ(utf8::leading_white_space(" \u3000a "), 4U);
  EXPECT_EQ(utf8::trailing_white_space(" a\u3000\n"), 4U);
  EXPECT_EQ(utf8::trailing_white_space("é"), 0U);
  EXPECT_EQ(utf8::leading_white_space(""), 0U);
}

TEST(ByteAlphabet, EveryByteHasItsOwnSymbol) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto symbol = byte_alphabet::symbol_of(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(byte_alphabet::byte_of(utf8::decode(symbol)), byte);
  }
  EXPECT_EQ(byte_alphabet::symbol_of(' '), "Ġ");
  EXPECT_EQ(byte_alphabet::symbol_of('\n'), "Ċ");
  EXPECT_EQ(byte_alphabet::symbol_of(0xAD), "Ń");
  EXPECT_EQ(byte_alphabet::byte_of(U'你'), std::nullopt);
  EXPECT_EQ(byte_alphabet::byte_of(U' '), std::nullopt);
  EXPECT_EQ(byte_alphabet::encode("a é"), "aĠÃ©");
}

}  // namespace
}  // namespace terrace::engine
