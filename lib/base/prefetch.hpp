// Asks for a cache line that will be read soon. A hint: nothing waits, and no address is wrong.
// Thread rule: any.
#pragma once

namespace terrace::internal {

// GCC takes a function that only prefetches for one without effects, and leaves out its calls. An empty
// statement that may not be left out keeps them.
[[gnu::always_inline]] inline void prefetch_line(const void* memory) noexcept {
  __builtin_prefetch(memory);
  asm volatile("");
}

}  // namespace terrace::internal
