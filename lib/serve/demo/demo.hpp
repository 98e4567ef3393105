// The demo: one long prompt, cold, from every tier, after a clean restart and after kill -9, with
// the same tokens each time.
//
// Starts its own server on a free port with a temporary NVMe directory, and removes both. Called by
// main().
// Thread rule: one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>

namespace terrace::demo {

struct DemoOptions {
  std::string model = "builtin:small";
  std::filesystem::path server;     // the terrace-serve binary
  std::filesystem::path directory;  // where the temporary directory is made
  std::uint32_t prompt_tokens =
      4096;  // or three quarters of the model's context, where that is less
  std::uint32_t max_tokens = 24;
  bool terminal = false;  // whether `out` understands carriage returns
};

// Returns: 0 where every answer was the same and came from where it should; 1 otherwise, having
// said why. Raising `interrupted` ends it early, cleaned up.
int run_demo(const DemoOptions& options, std::ostream& out, const std::atomic<bool>& interrupted);

}  // namespace terrace::demo
