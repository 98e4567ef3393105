// The "pre_tokenizer" of a tokenizer.json: cuts a normalized text into the pieces that the model
// encodes one by one, and rewrites them where the model wants that (byte alphabet, meta space). An
// unknown one is refused when it is read. Immutable once made; const use from any number of
// threads. Called by the tokenizer.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "engine/tokenizer/json_node.hpp"
#include "engine/tokenizer/pattern.hpp"

namespace terrace::engine {

struct Piece {
  std::string text;
  bool at_start;  // whether it is the beginning of the whole text; Metaspace's scheme "first" asks
};

enum class PrependScheme { always, never, first };

class PreTokenizer {
 public:
  struct Split {
    Pattern pattern;
    SplitBehavior behavior;
    bool invert;
  };
  struct ByteLevel {
    bool add_prefix_space;
    bool use_regex;
  };
  struct Metaspace {
    std::string replacement;
    PrependScheme scheme;
    bool split;
  };
  using Step = std::variant<Split, ByteLevel, Metaspace>;

  PreTokenizer() = default;  // the text is one piece
  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}
  // Throws LoadError.
  static PreTokenizer read(const JsonNode& node);

  // Pieces in order, none of them empty. REQUIRES: valid UTF-8.
  std::vector<Piece> apply(Piece text) const;

 private:
  void read_into(const JsonNode& node, int depth);

  std::vector<Step> steps_;
};

// Metaspace's prepend_scheme, from either of its spellings (the older files have add_prefix_space).
// Throws LoadError.
PrependScheme read_prepend_scheme(const JsonNode& metaspace);
// Metaspace's replacement, which must be one code point. Throws LoadError.
std::string read_replacement(const JsonNode& metaspace);

}  // namespace terrace::engine
