// The "normalizer" of a tokenizer.json: rewrites a text before it is cut. Prepend, Replace, Strip,
// NFC, NFD, NFKC, NFKD and sequences of them; any other is refused when it is read. Immutable once
// made; const use from any number of threads. Called by the tokenizer for the text between added
// tokens.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "engine/tokenizer/json_node.hpp"
#include "engine/tokenizer/pattern.hpp"

namespace terrace::engine {

class Normalizer {
 public:
  Normalizer() = default;  // leaves every text as it is
  // Throws LoadError.
  static Normalizer read(const JsonNode& node);

  // REQUIRES: valid UTF-8.
  std::string apply(std::string text) const;

  struct Prepend {
    std::string content;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left;
    bool right;
  };
  struct Unicode {
    bool compatibility;
    bool compose;
  };

 private:
  using Step = std::variant<Prepend, Replace, Strip, Unicode>;
  void read_into(const JsonNode& node, int depth);

  std::vector<Step> steps_;
};

}  // namespace terrace::engine
