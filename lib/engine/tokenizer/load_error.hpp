// What every loader of the reference engine throws when a file of a model directory cannot be used.
// The text names the file, the place in it, what is wrong and what to do. Never thrown after
// loading is over. Caught by whoever opens a model.
#pragma once

#include <stdexcept>
#include <string>

namespace terrace::engine {

class LoadError : public std::runtime_error {
 public:
  explicit LoadError(const std::string& what) : std::runtime_error(what) {}
};

}  // namespace terrace::engine
