// One pattern of a tokenizer.json: a literal text or a regular expression, and what to do with the
// text between and at its matches. Immutable once made; const use from any number of threads. Never
// looks at a text that is not valid UTF-8. Used by the normalizer, the pre-tokenizer, the decoder
// and the added tokens.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/json_node.hpp"

namespace terrace::engine {

struct Span {
  std::size_t begin;
  std::size_t end;
  bool is_match;
};

// Named as tokenizer.json names them.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

class Pattern {
 public:
  // REQUIRES: `text` is not empty.
  static Pattern literal(std::string text);
  // `pattern` in PCRE2's syntax. Throws PatternError where it does not compile.
  static Pattern regex(const std::string& pattern);
  // {"String": text} or {"Regex": pattern}, the latter in Oniguruma's syntax. Throws LoadError.
  static Pattern read(const JsonNode& node);

  // Contiguous spans that cover `text`, matches and what lies between them.
  std::vector<Span> find(std::string_view text) const;
  bool matches(std::string_view text) const;
  std::string replace_all(std::string_view text, std::string_view content) const;
  // Where to cut `text`: spans in order, empty ones left out; `removed` ones are gone.
  std::vector<Span> split(std::string_view text, SplitBehavior behavior, bool invert = false) const;

  // Whether it is a text of one code point, so that no match can reach over the end of a chunk.
  bool is_one_code_point() const;

 private:
  struct Compiled;
  std::vector<Span> find_literal(std::string_view text) const;
  std::vector<Span> find_regex(std::string_view text) const;

  std::string literal_;
  std::shared_ptr<const Compiled> compiled_;  // null for a literal
};

SplitBehavior read_split_behavior(const JsonNode& node);

}  // namespace terrace::engine
