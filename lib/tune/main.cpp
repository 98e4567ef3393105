// terrace-tune: options, and the library that does the rest.
#include <unistd.h>

#include <iostream>

#include "tune/inspect.hpp"
#include "tune/options.hpp"

int main(int argc, char** argv) {
  const auto parsed = terrace::tune::parse_options(argc, argv, std::cout, std::cerr);
  if (!parsed.inspect) return parsed.exit_code;
  return terrace::tune::inspect(*parsed.inspect, std::cout, std::cerr, isatty(STDERR_FILENO) != 0);
}
