// Byte quantities: literals, parsing and printing.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "terrace/result.hpp"

namespace terrace {

inline constexpr std::uint64_t KiB = 1024;
inline constexpr std::uint64_t MiB = 1024 * KiB;
inline constexpr std::uint64_t GiB = 1024 * MiB;

// "512MiB", "2GiB", "64KiB", "1TiB", "4096", "4096B", "1.5GiB": a non-negative number and a binary
// unit. Decimal units (MB) are refused, because half of their users mean the binary ones. Returns:
// the bytes; invalid_argument.
Result<std::uint64_t> parse_bytes(std::string_view text);

// "1.5 GiB", "512 MiB", "0 B": three significant digits.
std::string format_bytes(std::uint64_t bytes);

}  // namespace terrace
