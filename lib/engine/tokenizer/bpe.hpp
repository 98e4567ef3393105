// The "model" of a tokenizer.json: byte-pair encoding of one piece. Merges by rank with a heap over
// a linked list, so that a piece of n code points takes O(n log n). Immutable once made; const use
// from any number of threads, each with its own Scratch. Called by the tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/tokenizer/json_node.hpp"
#include "engine/tokenizer/pair_table.hpp"

namespace terrace::engine {

// Ids index dense tables; the largest vocabularies in use have about 2^18.
inline constexpr std::uint64_t token_id_limit = 1U << 24;

struct BpeOptions {
  std::string unk_token;       // empty: a character that is not in the vocabulary gives no token
  bool fuse_unk = false;       // unknown characters in a row give one token
  bool byte_fallback = false;  // unknown characters become their bytes' tokens <0x00> to <0xFF>
  bool ignore_merges = false;  // a piece that is itself in the vocabulary is that token
};

class Bpe {
 public:
  using Vocabulary = std::vector<std::pair<std::string, std::uint32_t>>;

  struct Symbol {
    std::uint32_t id;
    std::int32_t previous;  // index, -1 at the beginning
    std::int32_t next;      // index, -1 at the end
    bool alive;             // false once it has been merged into its left neighbour
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;  // index of the left symbol
    std::uint32_t merged_id;
  };
  // Buffers that one encode() call uses again for every piece.
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // A model without merges. REQUIRES: texts and ids are distinct, ids below token_id_limit.
  Bpe(Vocabulary vocabulary, BpeOptions options);
  // Throws LoadError.
  static Bpe read(const JsonNode& model);

  Bpe(Bpe&&) = default;
  Bpe& operator=(Bpe&&) = default;

  // Appends the ids of `piece` to `ids`. REQUIRES: valid UTF-8 of less than 2^31 code points.
  void encode(std::string_view piece, std::vector<std::uint32_t>& ids, Scratch& scratch) const;

  std::optional<std::uint32_t> id_of(std::string_view text) const;
  // Null where no token has that id.
  const std::string* text_of(std::uint32_t id) const;
  std::size_t token_count() const { return ids_.size(); }
  // One more than the largest id.
  std::uint32_t id_end() const { return static_cast<std::uint32_t>(texts_.size()); }

 private:
  struct Merge {
    std::uint32_t rank;
    std::uint32_t merged_id;
  };
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  void add_merge(const JsonNode& node, std::size_t index, std::string_view left,
                 std::string_view right, std::uint32_t rank);
  bool is_of_characters(std::string_view side) const;
  void add_bond(std::string_view left, std::string_view right);
  bool is_bound(std::uint32_t left, std::uint32_t right) const;
  void read_merges(const JsonNode& node);
  void add_characters(std::string_view piece, Scratch& scratch) const;
  bool add_bytes(std::string_view character, Scratch& scratch) const;
  void merge(Scratch& scratch, std::int32_t begin, std::int32_t end) const;
  void add_candidate(std::int32_t left, std::vector<Symbol>& symbols,
                     std::vector<Candidate>& heap) const;
  bool apply(const Candidate& candidate, std::vector<Symbol>& symbols) const;

  BpeOptions options_;
  std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>> ids_;
  std::vector<const std::string*> texts_;  // keys of ids_, whose addresses stay when it is moved
  PairTable<Merge> merges_;
  PairTable<bool> bonds_;  // characters between which some merge can reach: its left part ends with
                           // the one, its right part begins with the other
  bool falls_apart_ = true;  // whether bonds_ is complete
  std::optional<std::uint32_t> unk_id_;
  std::vector<std::optional<std::uint32_t>> byte_ids_;  // 256 with byte_fallback, else none
};

}  // namespace terrace::engine
