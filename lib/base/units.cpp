// Byte quantities as text.
//
// Must never depend on the locale: a size in a configuration means the same everywhere. Called by
// option parsers and by whoever prints sizes.
// Thread rule: pure functions.
#include "terrace/units.hpp"

#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace terrace {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array<Unit, 6> units{{{"B", 1},
                                     {"KiB", KiB},
                                     {"MiB", MiB},
                                     {"GiB", GiB},
                                     {"TiB", 1024 * GiB},
                                     {"PiB", 1024 * 1024 * GiB}}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view take_digits(std::string_view& text) {
  std::size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

std::optional<std::uint64_t> unit_bytes(std::string_view name) {
  if (name.empty()) return 1;
  for (const Unit& unit : units) {
    if (unit.name == name) return unit.bytes;
  }
  return std::nullopt;
}

// The part of one unit that the decimals name, rounded down. From the last digit to the first, so
// that no step exceeds 10 * unit: nested floors of integer divisions equal the floor of the whole.
std::uint64_t fraction_of(std::string_view decimals, std::uint64_t unit) {
  std::uint64_t bytes = 0;
  for (auto digit = decimals.rbegin(); digit != decimals.rend(); ++digit) {
    bytes = (static_cast<std::uint64_t>(*digit - '0') * unit + bytes) / 10;
  }
  return bytes;
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::string_view rest = text;
  const std::string_view whole = take_digits(rest);
  if (whole.empty()) {
    return fail(Code::invalid_argument,
                "a size starts with a digit and is not negative, as in 512MiB or 1.5GiB");
  }
  std::string_view decimals;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    decimals = take_digits(rest);
    if (decimals.empty()) {
      return fail(Code::invalid_argument, "a size has no digit after its point; write 1.5GiB");
    }
  }
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  const std::optional<std::uint64_t> unit = unit_bytes(rest);
  if (!unit) {
    return fail(Code::invalid_argument,
                "unknown unit of a size: use B, KiB, MiB, GiB, TiB or PiB (1 KiB is 1024 bytes; "
                "decimal units are not "
                "taken)");
  }
  if (*unit == 1 && !decimals.empty()) {
    return fail(Code::invalid_argument,
                "a size in bytes has no decimals; name a unit, as in 1.5KiB");
  }
  std::uint64_t count = 0;
  const auto parsed = std::from_chars(whole.data(), whole.data() + whole.size(), count);
  const std::uint64_t fraction = fraction_of(decimals, *unit);
  constexpr std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  if (parsed.ec != std::errc{} || count > (limit - fraction) / *unit) {
    return fail(Code::invalid_argument, "a size is too large: at most 16383PiB");
  }
  return count * *unit + fraction;
}

std::string format_bytes(std::uint64_t bytes) {
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  // 1023.5 would be printed as 1024 of the smaller unit.
  while (unit + 1 < units.size() && value >= (unit == 0 ? 1024.0 : 1023.5)) {
    value /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 99.95 ? 0 : (value >= 9.995 ? 1 : 2);
  std::array<char, 32> buffer;
  const auto printed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::fixed, decimals);
  std::string text(buffer.data(), printed.ptr);
  if (decimals > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text + ' ' + std::string(units[unit].name);
}

}  // namespace terrace
