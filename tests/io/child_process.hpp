// A child process, for what cannot be undone: dropped privileges, limits, filters of system calls.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace terrace::test {

// Returns: what `body` returned in a child process, or -1 if the child was killed. 77 is for "not
// permitted here".
inline constexpr int not_permitted = 77;

template <class Body>
int run_in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int result = body();
    ::_exit(testing::Test::HasFailure() ? 99 : result);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace terrace::test
