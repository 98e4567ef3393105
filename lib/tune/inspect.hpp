// terrace-tune inspect: a cache directory, listed, verified, summarised.
//
// Called by: main(), tests.
// Thread rule: blocks; progress and everything else is printed by the calling thread.
#pragma once

#include <iosfwd>

#include "tune/options.hpp"

namespace terrace::tune {

// Returns: the exit status of the program. What was found goes to `out`; why nothing can be, to
// `err`, and progress too where that is a terminal.
int inspect(const InspectOptions& options, std::ostream& out, std::ostream& err,
            bool err_is_terminal);

}  // namespace terrace::tune
