// Tells a person on stderr what takes so long: one line that updates itself on a terminal, sparse
// lines elsewhere.
//
// Called from the hooks of loader and cache.
// Thread rule: every method from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <mutex>
#include <string>
#include <string_view>

namespace terrace::serve {

class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  // `terminal`: whether `out` understands carriage returns. `out` outlives this.
  ProgressLine(std::ostream& out, bool terminal) : out_(out), terminal_(terminal) {}

  // `done` of `total` units of `step` are done; a `total` of 0 is unknown.
  void update(std::string_view step, std::uint64_t done, std::uint64_t total);
  // A line of its own, above the updating one.
  void say(std::string_view line);
  // Leaves the cursor on an empty line.
  void finish();

 private:
  void clear_line();

  std::ostream& out_;
  const bool terminal_;
  std::mutex mutex_;
  std::string step_;
  Clock::time_point shown_at_{};
  bool line_open_ = false;
};

}  // namespace terrace::serve
