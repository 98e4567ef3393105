// Tokens beside the model's merges: special ones (<s>, <|im_end|>) and ordinary ones that a model
// was given later. They are found in the text before the model sees it, with the flags of Hugging
// Face's AddedToken. Immutable after build(); const use from any number of threads. Called by the
// tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer/bpe.hpp"
#include "engine/tokenizer/json_node.hpp"
#include "engine/tokenizer/normalizer.hpp"
#include "engine/tokenizer/pattern.hpp"

namespace terrace::engine {

struct AddedToken {
  std::string content;
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the white space to its left along
  bool rstrip = false;       // and to its right
  bool normalized = false;   // looked for in the normalized text, by its normalized content
  bool special = false;      // left out of decoded text
};

// A part of a text: an added token, or text between added tokens.
struct Segment {
  std::string_view text;
  std::optional<std::uint32_t> id;
  bool at_start;  // whether it begins where the text that was split begins
};

class AddedTokens {
 public:
  AddedTokens();

  // {"id", "content", flags}. An id that Hugging Face's reader would not give the token is refused:
  // the files of the model contradict each other. A token that is added again takes the later
  // flags. Throws LoadError.
  void add(const JsonNode& node, std::uint64_t declared_id, const Bpe& model);
  // Call once, after the last add(). Throws LoadError naming `node`.
  void build(const Normalizer& normalizer, const JsonNode& node);

  // Splits by the tokens that are looked for in the raw text, and by those looked for in normalized
  // text.
  std::vector<Segment> split_raw(std::string_view text) const { return split(text, raw_); }
  std::vector<Segment> split_normalized(std::string_view text) const {
    return split(text, normalized_);
  }

  std::optional<std::uint32_t> id_of(std::string_view content) const;
  // What decoders see for the token; null where `id` is no added token.
  const std::string* text_of(std::uint32_t id) const;
  bool is_special(std::uint32_t id) const;
  void mark_special(std::uint32_t id) { specials_.insert_or_assign(id, true); }
  // One more than the largest id, 0 where there is none.
  std::uint32_t id_end() const;

 private:
  // A set of byte strings in which the longest one at a place is found.
  class Trie {
   public:
    // False where the text is already there.
    bool add(std::string_view text, std::uint32_t id);
    struct Match {
      std::size_t length;
      std::uint32_t id;
    };
    std::optional<Match> longest_at(std::string_view text) const;
    bool empty() const { return ids_.size() <= 1; }

   private:
    std::unordered_map<std::uint64_t, std::uint32_t> children_;       // node << 8 | byte -> node
    std::vector<std::optional<std::uint32_t>> ids_ = {std::nullopt};  // by node; 0 is the root
  };

  struct Bounds {
    std::size_t begin;
    std::size_t end;
  };
  std::vector<Segment> split(std::string_view text, const Trie& trie) const;
  bool is_single_word(std::string_view text, Bounds match) const;
  std::uint32_t next_id(const Bpe& model) const;

  std::unordered_map<std::string, std::uint32_t> ids_;
  std::unordered_map<std::uint32_t, AddedToken> tokens_;
  std::unordered_map<std::uint32_t, std::string> decoded_;  // texts that decoders see
  std::unordered_map<std::uint32_t, bool> specials_;
  Trie raw_;
  Trie normalized_;
  Pattern word_character_;
};

}  // namespace terrace::engine
