#include "serve/progress_line.hpp"

#include <algorithm>
#include <ostream>

namespace terrace::serve {
namespace {

using namespace std::chrono_literals;

// A terminal is redrawn ten times a second; a log gets a line every ten seconds.
constexpr auto kTerminalInterval = 100ms;
constexpr auto kLogInterval = 10s;

std::string percent(std::uint64_t done, std::uint64_t total) {
  if (total == 0) return "";
  const double part = static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  std::string text(1, ' ');
  text.append(std::to_string(static_cast<int>(100 * part)));
  return text.append(1, '%');
}

}  // namespace

void ProgressLine::update(std::string_view step, std::uint64_t done, std::uint64_t total) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  const bool new_step = step != step_;
  const bool last = total != 0 && done >= total;
  const auto interval =
      terminal_ ? Clock::duration(kTerminalInterval) : Clock::duration(kLogInterval);
  const bool due = new_step || now - shown_at_ >= interval || (terminal_ && last);
  if (!due) return;
  step_ = step;
  shown_at_ = now;
  if (terminal_) {
    out_ << "\r\x1b[Kterrace-serve: " << step << percent(done, total) << std::flush;
    line_open_ = true;
  } else {
    // The first line of a step says that it began; how far it is, only those of a long one.
    out_ << "terrace-serve: " << step << (new_step ? "" : percent(done, total)) << std::endl;
  }
}

void ProgressLine::say(std::string_view line) {
  const std::lock_guard lock(mutex_);
  clear_line();
  out_ << "terrace-serve: " << line << std::endl;
}

void ProgressLine::finish() {
  const std::lock_guard lock(mutex_);
  clear_line();
  out_ << std::flush;
}

void ProgressLine::clear_line() {
  if (line_open_) out_ << "\r\x1b[K";
  line_open_ = false;
}

}  // namespace terrace::serve
