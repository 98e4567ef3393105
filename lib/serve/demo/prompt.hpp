// A long text that a person could read, of any length, and no two paragraphs alike: what a long
// prompt is made of.
//
// Called by the demo and tests.
// Thread rule: pure function.
#pragma once

#include <cstddef>
#include <string>

namespace terrace::demo {

// The first `bytes` bytes of a lighthouse keeper's log. ASCII.
std::string lighthouse_log(std::size_t bytes);

}  // namespace terrace::demo
