// One line that updates itself on a terminal, sparse lines elsewhere.
#include "serve/progress_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace terrace::serve {
namespace {

std::size_t lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(ProgressLine, InALogEachStepIsOneLineHoweverOftenItIsUpdated) {
  std::ostringstream out;
  ProgressLine progress(out, false);
  for (int i = 0; i <= 1000; ++i) progress.update("hashing", i, 1000);
  progress.update("prefaulting", 0, 10);
  progress.finish();
  EXPECT_EQ(out.str(), "terrace-serve: hashing\nterrace-serve: prefaulting\n");
}

TEST(ProgressLine, OnATerminalOneLineIsRedrawnAndItsEndIsShown) {
  std::ostringstream out;
  ProgressLine progress(out, true);
  progress.update("hashing", 0, 1000);
  for (int i = 1; i < 1000; ++i) progress.update("hashing", i, 1000);
  progress.update("hashing", 1000, 1000);
  EXPECT_EQ(lines(out.str()), 0u);
  EXPECT_THAT(out.str(), testing::EndsWith("\r\x1b[Kterrace-serve: hashing 100%"));
  progress.say("warning: no huge pages");
  EXPECT_THAT(out.str(), testing::EndsWith("\r\x1b[Kterrace-serve: warning: no huge pages\n"));
  progress.finish();
}

TEST(ProgressLine, UnknownTotalHasNoPercentage) {
  std::ostringstream out;
  ProgressLine(out, false).update("recovering", 5, 0);
  EXPECT_EQ(out.str(), "terrace-serve: recovering\n");
}

}  // namespace
}  // namespace terrace::serve
