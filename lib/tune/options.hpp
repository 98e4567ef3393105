// What terrace-tune was asked for. Never opens anything. Called by main() and tests.
// Thread rule: plain values and pure functions.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

namespace terrace::tune {

// How the program ends; what it says of itself in --help.
inline constexpr int kClean = 0;
inline constexpr int kDamageFound = 1;
inline constexpr int kCannotInspect = 2;

struct InspectOptions {
  std::string path;
  bool verify = false;  // read payloads, too
  bool list = false;    // a line for each record instead of the summary
  bool json = false;
  bool live = false;  // also while a cache has the directory open
};

struct ParsedOptions {
  std::optional<InspectOptions> inspect;  // absent: --help, or an error that was printed
  int exit_code = kClean;
};

// Parses the command line. Help goes to `out`, errors to `err`.
ParsedOptions parse_options(int argc, const char* const* argv, std::ostream& out,
                            std::ostream& err);

}  // namespace terrace::tune
