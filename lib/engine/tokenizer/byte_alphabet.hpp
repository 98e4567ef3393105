// The byte-level alphabet of GPT-2 and its heirs: each byte value is written as one printable code
// point, so that a vocabulary of strings can hold any bytes. Constant tables, no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace terrace::engine::byte_alphabet {

// The UTF-8 text that stands for `byte`: one or two bytes.
std::string_view symbol_of(std::uint8_t byte);

// The byte that `code_point` stands for, if it is of the alphabet.
std::optional<std::uint8_t> byte_of(char32_t code_point);

std::string encode(std::string_view bytes);

}  // namespace terrace::engine::byte_alphabet
