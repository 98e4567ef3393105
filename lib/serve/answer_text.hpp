// The text of an answer as its tokens come, cut before the first stop string.
//
// Called by CompletionService.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.hpp"

namespace terrace::serve {

class AnswerText {
 public:
  // `stop` outlives this.
  AnswerText(const engine::Tokenizer& tokenizer, std::span<const std::uint32_t> prompt,
             const std::vector<std::string>& stop)
      : decoder_(tokenizer, prompt), stop_(stop) {}

  // Returns: whether to go on; false where a stop string is complete.
  bool push(std::uint32_t token) { return append(decoder_.push(token)); }
  // After the last token: adds what the decoder still held back.
  void finish();

  const std::string& text() const noexcept { return text_; }

 private:
  bool append(const std::string& piece);

  engine::StreamDecoder decoder_;
  const std::vector<std::string>& stop_;
  std::string text_;
  bool stopped_ = false;
};

}  // namespace terrace::serve
