// Byte quantities: what is read, what is refused, what is printed.
#include "terrace/units.hpp"

#include <gtest/gtest.h>

#include <clocale>
#include <limits>

namespace terrace {
namespace {

TEST(ParseBytes, ReadsBinaryUnits) {
  const std::pair<const char*, std::uint64_t> cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"4096B", 4096},
      {"64KiB", 64 * KiB},
      {"512MiB", 512 * MiB},
      {"2GiB", 2 * GiB},
      {"1.5GiB", 3 * GiB / 2},
      {"1.5 GiB", 3 * GiB / 2},
      {"0.1KiB", 102},
      {"1.00000000000000000000KiB", 1024},
      {"1TiB", 1024 * GiB},
      {"3PiB", 3 * 1024 * 1024 * GiB},
      {"18446744073709551615", std::numeric_limits<std::uint64_t>::max()},
      {"16383.9999999PiB", 18446744073596961625u},
  };
  for (const auto& [text, bytes] : cases) {
    Result<std::uint64_t> parsed = parse_bytes(text);
    ASSERT_TRUE(parsed) << text << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(ParseBytes, RefusesWhatIsAmbiguousOrTooLarge) {
  for (const char* text : {"",
                           " ",
                           "-1",
                           "+1",
                           "1MB",
                           "1M",
                           "1mib",
                           "KiB",
                           ".5KiB",
                           "1.KiB",
                           "1.5",
                           "1.5B",
                           "1e3",
                           "0x10",
                           "1 KiB ",
                           "1  KiB",
                           "1KiB2",
                           "nan",
                           "18446744073709551616",
                           "16384PiB",
                           "99999999999999999999PiB"}) {
    const Result<std::uint64_t> parsed = parse_bytes(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::invalid_argument) << text;
    EXPECT_STRNE(parsed.error().message, "");
  }
}

TEST(FormatBytes, PrintsThreeSignificantDigits) {
  const std::pair<std::uint64_t, const char*> cases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1 KiB"},
      {1536, "1.5 KiB"},
      {1234567, "1.18 MiB"},
      {12345678, "11.8 MiB"},
      {123456789, "118 MiB"},
      {512 * MiB, "512 MiB"},
      {GiB - 1, "1 GiB"},
      {10239 * KiB, "10 MiB"},
      {3 * GiB / 2, "1.5 GiB"},
      {100 * GiB, "100 GiB"},
      {std::numeric_limits<std::uint64_t>::max(), "16384 PiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(format_bytes(bytes), text);
}

TEST(FormatBytes, RoundTripsWithinItsDigits) {
  for (std::uint64_t bytes = 1; bytes < 1024 * GiB; bytes = bytes * 7 / 3 + 1) {
    Result<std::uint64_t> back = parse_bytes(format_bytes(bytes));
    ASSERT_TRUE(back) << format_bytes(bytes);
    EXPECT_NEAR(static_cast<double>(*back), static_cast<double>(bytes),
                0.0051 * static_cast<double>(bytes));
  }
}

TEST(Units, DoNotDependOnTheLocale) {
  const char* comma = nullptr;
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"}) {
    if (comma == nullptr) comma = std::setlocale(LC_ALL, name);
  }
  if (comma == nullptr) GTEST_SKIP() << "no locale with a decimal comma is installed";
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(parse_bytes("1.5KiB").value(), 1536u);
  std::setlocale(LC_ALL, "C");
}

}  // namespace
}  // namespace terrace
