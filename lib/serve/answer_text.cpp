#include "serve/answer_text.hpp"

#include <algorithm>

namespace terrace::serve {

void AnswerText::finish() {
  if (!stopped_) append(decoder_.finish());
}

bool AnswerText::append(const std::string& piece) {
  const std::size_t before = text_.size();
  text_ += piece;
  std::size_t cut = std::string::npos;
  for (const std::string& stop : stop_) {
    // A stop string may have begun in earlier pieces, but not have ended there.
    const std::size_t from = before - std::min(before, stop.size() - 1);
    cut = std::min(cut, text_.find(stop, from));
  }
  if (cut == std::string::npos) return true;
  text_.resize(cut);
  stopped_ = true;
  return false;
}

}  // namespace terrace::serve
