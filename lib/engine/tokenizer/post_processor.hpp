// The "post_processor" of a tokenizer.json, as far as it touches token ids: which special tokens go
// before and behind an encoded text. TemplateProcessing, ByteLevel (which only moves offsets) and
// sequences of them; any other is refused when it is read. A plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tokenizer/json_node.hpp"

namespace terrace::engine {

struct PostProcessor {
  std::vector<std::uint32_t> prefix;
  std::vector<std::uint32_t> suffix;

  // Throws LoadError.
  static PostProcessor read(const JsonNode& node);
};

}  // namespace terrace::engine
