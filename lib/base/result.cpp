// Names of the error codes, and the end of a process that takes a value where there is none.
//
// Must never allocate: it may be called when memory is short. Called by everyone.
// Thread rule: pure functions.
#include "terrace/result.hpp"

#include <cstdio>
#include <cstdlib>

namespace terrace {

const char* to_string(Code code) noexcept {
  switch (code) {
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::identity_incomplete:
      return "identity_incomplete";
    case Code::layout_mismatch:
      return "layout_mismatch";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::no_space:
      return "no_space";
    case Code::retry_later:
      return "retry_later";
    case Code::busy:
      return "busy";
    case Code::io_error:
      return "io_error";
    case Code::corrupt:
      return "corrupt";
    case Code::unsupported:
      return "unsupported";
    case Code::deadline_exceeded:
      return "deadline_exceeded";
    case Code::cancelled:
      return "cancelled";
    case Code::closed:
      return "closed";
  }
  return "unknown";
}

namespace detail {

void bad_result_access(const Error& error) noexcept {
  std::fprintf(stderr, "terrace: a Result without a value was read: %s: %s (os_error %d)\n",
               to_string(error.code), error.message, error.os_error);
  std::abort();
}

}  // namespace detail
}  // namespace terrace
