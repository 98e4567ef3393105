// Which token comes next. Greedy only, so far. Called by the session.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace terrace::engine {

// The id of the largest logit; of several equal ones the lowest. A NaN is never the largest.
// REQUIRES: `logits` is not empty.
std::uint32_t argmax(std::span<const float> logits) noexcept;

}  // namespace terrace::engine
