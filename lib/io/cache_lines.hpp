// Memory, taken out of this processor's caches.
//
// For bytes that somebody else will read next, and this processor will not: where a disk is virtual,
// another processor copies them, and fetching each line from this one's caches slows it down by a
// tenth. A controller of real hardware does not care.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <span>

namespace terrace::internal {

// Changes no byte; does nothing where the processor has no instruction for it.
void flush_lines(std::span<const std::byte> memory) noexcept;

}  // namespace terrace::internal
