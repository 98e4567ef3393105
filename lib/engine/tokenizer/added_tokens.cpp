// See added_tokens.hpp.
#include "engine/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "engine/tokenizer/oniguruma.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace terrace::engine {

AddedTokens::AddedTokens()
    : word_character_(Pattern::regex("[" + std::string(rust_word_class) + "]")) {}

// Ids behind the vocabulary in order of appearance, as Hugging Face's reader gives them.
std::uint32_t AddedTokens::next_id(const Bpe& model) const {
  return std::max(static_cast<std::uint32_t>(model.token_count()), id_end());
}

void AddedTokens::add(const JsonNode& node, std::uint64_t declared_id, const Bpe& model) {
  node.only(
      {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", "__type"});
  AddedToken token;
  token.content = node.string("content");
  token.single_word = node.boolean_or("single_word", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.special = node.boolean_or("special", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  if (token.content.empty()) return;
  const auto known = id_of(token.content);
  const auto in_model = model.id_of(token.content);
  const std::uint32_t id = known ? *known : in_model ? *in_model : next_id(model);
  if (id != declared_id || id >= token_id_limit) {
    node.fail("added token '" + token.content + "' has id " + std::to_string(declared_id) +
              ", but by the vocabulary and the tokens before it it would get " +
              std::to_string(id) + " (ids must be below " + std::to_string(token_id_limit) +
              "); the files of this tokenizer do not belong together");
  }
  ids_[token.content] = id;
  if (token.special) specials_[id] = true;
  tokens_[id] = std::move(token);
}

void AddedTokens::build(const Normalizer& normalizer, const JsonNode& node) {
  for (const auto& [id, token] : tokens_) {
    std::string text = token.normalized ? normalizer.apply(token.content) : token.content;
    if (text.empty()) node.fail("added token '" + token.content + "' is empty once normalized");
    Trie& trie = token.normalized ? normalized_ : raw_;
    if (!trie.add(text, id)) {
      node.fail("two added tokens are both '" + text + "' once normalized");
    }
    decoded_[id] = std::move(text);
  }
}

std::optional<std::uint32_t> AddedTokens::id_of(std::string_view content) const {
  const auto entry = ids_.find(std::string(content));
  if (entry == ids_.end()) return std::nullopt;
  return entry->second;
}

const std::string* AddedTokens::text_of(std::uint32_t id) const {
  const auto entry = decoded_.find(id);
  return entry == decoded_.end() ? nullptr : &entry->second;
}

bool AddedTokens::is_special(std::uint32_t id) const {
  return specials_.contains(id);
}

std::uint32_t AddedTokens::id_end() const {
  std::uint32_t end = 0;
  for (const auto& entry : tokens_) end = std::max(end, entry.first + 1);
  return end;
}

bool AddedTokens::Trie::add(std::string_view text, std::uint32_t id) {
  std::uint32_t node = 0;
  for (const char byte : text) {
    const std::uint64_t edge = std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
    const auto [child, is_new] = children_.try_emplace(edge, ids_.size());
    if (is_new) ids_.emplace_back();
    node = child->second;
  }
  if (ids_[node]) return false;
  ids_[node] = id;
  return true;
}

std::optional<AddedTokens::Trie::Match> AddedTokens::Trie::longest_at(std::string_view text) const {
  std::optional<Match> longest;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto child =
        children_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (ids_[node]) longest = Match{i + 1, *ids_[node]};
  }
  return longest;
}

bool AddedTokens::is_single_word(std::string_view text, Bounds match) const {
  const auto is_word = [&](std::size_t at) {
    return word_character_.matches(text.substr(at, utf8::length_of(text[at])));
  };
  const bool word_before =
      match.begin > 0 && is_word(utf8::last_begin(text.substr(0, match.begin)));
  const bool word_behind = match.end < text.size() && is_word(match.end);
  return !word_before && !word_behind;
}

// Leftmost, then longest. A token that is refused for its surroundings is passed over as a whole:
// no shorter one within it is looked for.
std::vector<Segment> AddedTokens::split(std::string_view text, const Trie& trie) const {
  std::vector<Segment> segments;
  std::size_t done = 0;  // the text up to here is in segments
  const auto add = [&](Bounds bounds, std::optional<std::uint32_t> id) {
    if (bounds.begin >= bounds.end) return;
    segments.push_back(
        {text.substr(bounds.begin, bounds.end - bounds.begin), id, bounds.begin == 0});
  };
  for (std::size_t at = 0; !trie.empty() && at < text.size();) {
    const auto match = trie.longest_at(text.substr(at));
    if (!match) {
      ++at;
      continue;
    }
    Bounds bounds{at, at + match->length};
    at = bounds.end;
    const AddedToken& token = tokens_.at(match->id);
    if (token.single_word && !is_single_word(text, bounds)) continue;
    if (token.lstrip) {
      bounds.begin -= utf8::trailing_white_space(text.substr(0, bounds.begin));
      bounds.begin = std::max(bounds.begin, done);
    }
    if (token.rstrip) bounds.end += utf8::leading_white_space(text.substr(bounds.end));
    add({done, bounds.begin}, std::nullopt);
    add(bounds, match->id);
    done = bounds.end;
  }
  add({done, text.size()}, std::nullopt);
  return segments;
}

}  // namespace terrace::engine
