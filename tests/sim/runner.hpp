// Runs configurations, each in a child process, so that an assertion of the library or a sanitizer's
// report is a finding with a seed like any other; and makes a failing one smaller.
//
// Thread rule: one thread in the process.
#pragma once

#include <string>

#include "sim/scenario.hpp"

namespace terrace::sim {

Outcome run_here(const Config& config);
Outcome run_in_child(const Config& config);
// Fewer operations and fewer kinds of faults, as long as it still fails. Bounded: a few dozen runs.
Config shrink(const Config& config);
// What to type to see it again, in one process, as under a debugger.
std::string replay_command(const Config& config);
// TERRACE_SIM_SEED, and _OPERATIONS, _FAULTS and _CANARY: a configuration from the environment. Returns: false where there is none.
bool config_from_environment(Config& config);

}  // namespace terrace::sim
