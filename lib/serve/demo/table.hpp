// The demo's table: one row a request, the times side by side. Called by the demo.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "serve/demo/client.hpp"

namespace terrace::demo {

std::string table_head();
// `cold` is the first row's completion.
std::string table_row(const std::string& state, const Completion& completion,
                      const Completion& cold);

}  // namespace terrace::demo
