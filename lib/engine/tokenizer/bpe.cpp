// See bpe.hpp.
#include "engine/tokenizer/bpe.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/tokenizer/utf8.hpp"

namespace terrace::engine {
namespace {

// Lowest rank first, and of equal ranks the leftmost: std heaps keep their largest element on top.
bool comes_later(const Bpe::Candidate& a, const Bpe::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

std::string byte_token(unsigned byte) {
  char text[8];
  std::snprintf(text, sizeof text, "<0x%02X>", byte);
  return text;
}

Bpe::Vocabulary read_vocabulary(const JsonNode& node) {
  node.require_object();
  Bpe::Vocabulary vocabulary;
  vocabulary.reserve(node.value().size());
  for (auto entry = node.value().begin(); entry != node.value().end(); ++entry) {
    if (!entry->is_number_unsigned() || entry->get<std::uint64_t>() >= token_id_limit) {
      node.fail("the id of token '" + entry.key() + "' must be a whole number below " +
                std::to_string(token_id_limit) + ", is " + entry->dump());
    }
    vocabulary.emplace_back(entry.key(), entry->get<std::uint32_t>());
  }
  std::vector<const std::string*> seen;
  for (const auto& [text, id] : vocabulary) {
    if (id >= seen.size()) seen.resize(id + 1);
    if (seen[id] != nullptr) {
      node.fail("tokens '" + *seen[id] + "' and '" + text + "' have the same id " +
                std::to_string(id));
    }
    seen[id] = &text;
  }
  return vocabulary;
}

void refuse_unsupported(const JsonNode& model) {
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
              "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  // Files from before the type was written down hold BPE where they hold merges.
  const std::string type = model.string_or("type", model.has("merges") ? "BPE" : "");
  if (type != "BPE") {
    model.fail("model type '" + type + "' is not supported; only BPE is");
  }
  if (model.has("dropout") && model.at("dropout").value() != 0.0) {
    model.fail("dropout makes token ids random; set it to null");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string_or(name, "").empty()) {
      model.fail(std::string(name) + " is not supported; it must be null or empty");
    }
  }
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, BpeOptions options) : options_(std::move(options)) {
  ids_.reserve(vocabulary.size());
  for (auto& [text, id] : vocabulary) {
    const auto entry = ids_.emplace(std::move(text), id).first;
    if (id >= texts_.size()) texts_.resize(id + 1);
    texts_[id] = &entry->first;
  }
  if (!options_.unk_token.empty()) unk_id_ = id_of(options_.unk_token);
  if (!options_.byte_fallback) return;
  for (unsigned byte = 0; byte < 256; ++byte) byte_ids_.push_back(id_of(byte_token(byte)));
}

Bpe Bpe::read(const JsonNode& model) {
  refuse_unsupported(model);
  BpeOptions options;
  options.unk_token = model.string_or("unk_token", "");
  options.fuse_unk = model.boolean_or("fuse_unk", false);
  options.byte_fallback = model.boolean_or("byte_fallback", false);
  options.ignore_merges = model.boolean_or("ignore_merges", false);
  Bpe bpe(read_vocabulary(model.at("vocab")), std::move(options));
  if (!bpe.options_.unk_token.empty() && !bpe.unk_id_) {
    model.fail("unk_token '" + bpe.options_.unk_token + "' is not in the vocabulary");
  }
  bpe.read_merges(model.at("merges"));
  return bpe;
}

// "a b" in older files, ["a", "b"] in newer ones, where a token may hold a space.
void Bpe::read_merges(const JsonNode& node) {
  if (!node.value().is_array()) node.fail("must be an array");
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < node.value().size(); ++i) {
    const nlohmann::json& merge = node.value()[i];
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const std::size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) {
        node.fail("merge " + std::to_string(i) + " '" + std::string(text) +
                  "' is not two tokens with one space between them");
      }
      add_merge(node, i, text.substr(0, space), text.substr(space + 1), rank++);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      add_merge(node, i, merge[0].get_ref<const std::string&>(),
                merge[1].get_ref<const std::string&>(), rank++);
    } else {
      node.fail("merge " + std::to_string(i) +
                " is neither \"a b\" nor [\"a\", \"b\"]: " + merge.dump());
    }
  }
}

void Bpe::add_merge(const JsonNode& node, std::size_t index, std::string_view left,
                    std::string_view right, std::uint32_t rank) {
  const std::string merged = std::string(left) + std::string(right);
  const auto known = [&](std::string_view text) {
    const auto id = id_of(text);
    if (!id) {
      node.fail("merge " + std::to_string(index) + " of '" + std::string(left) + "' and '" +
                std::string(right) + "' needs token '" + std::string(text) +
                "', which is not in the vocabulary");
    }
    return *id;
  };
  const std::uint32_t left_id = known(left);
  const std::uint32_t right_id = known(right);
  // Of two merges of the same pair the later one counts, as in Hugging Face's reader.
  merges_.insert_or_assign(left_id, right_id, {rank, known(merged)});
  falls_apart_ = falls_apart_ && is_of_characters(left) && is_of_characters(right);
  if (falls_apart_) add_bond(left, right);
}

// Byte tokens and the unknown token stand for other characters than their text shows, so that
// bonds_ would miss a merge of them.
bool Bpe::is_of_characters(std::string_view side) const {
  const bool is_byte = options_.byte_fallback && side.size() == 6 && side.starts_with("<0x");
  return !side.empty() && !is_byte && side != options_.unk_token;
}

void Bpe::add_bond(std::string_view left, std::string_view right) {
  const auto last = id_of(left.substr(utf8::last_begin(left)));
  const auto first = id_of(right.substr(0, utf8::length_of(right[0])));
  if (last && first) bonds_.insert_or_assign(*last, *first, true);
}

bool Bpe::is_bound(std::uint32_t left, std::uint32_t right) const {
  return !falls_apart_ || bonds_.find(left, right) != nullptr;
}

std::optional<std::uint32_t> Bpe::id_of(std::string_view text) const {
  const auto entry = ids_.find(text);
  if (entry == ids_.end()) return std::nullopt;
  return entry->second;
}

const std::string* Bpe::text_of(std::uint32_t id) const {
  return id < texts_.size() ? texts_[id] : nullptr;
}

void Bpe::encode(std::string_view piece, std::vector<std::uint32_t>& ids, Scratch& scratch) const {
  if (options_.ignore_merges) {
    if (const auto whole = id_of(piece)) {
      ids.push_back(*whole);
      return;
    }
  }
  add_characters(piece, scratch);
  const auto& symbols = scratch.symbols;
  std::int32_t begin = 0;
  for (std::int32_t end = 1; end <= static_cast<std::int32_t>(symbols.size()); ++end) {
    const bool bound = end < static_cast<std::int32_t>(symbols.size()) &&
                       is_bound(symbols[end - 1].id, symbols[end].id);
    if (bound) continue;
    if (end - begin > 1) merge(scratch, begin, end);
    begin = end;
  }
  for (const Symbol& symbol : scratch.symbols) {
    if (symbol.alive) ids.push_back(symbol.id);
  }
}

// One symbol a code point. An unknown one waits in `unknown`, so that the next one can be fused
// with it; byte tokens do not end the wait, which is what Hugging Face's reader does where only
// some of the 256 byte tokens exist.
void Bpe::add_characters(std::string_view piece, Scratch& scratch) const {
  scratch.symbols.clear();
  bool unknown = false;
  const auto flush = [&] {
    if (unknown) scratch.symbols.push_back({*unk_id_, -1, -1, true});
    unknown = false;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::string_view character = piece.substr(at, utf8::length_of(piece[at]));
    at += character.size();
    if (const auto id = id_of(character)) {
      flush();
      scratch.symbols.push_back({*id, -1, -1, true});
    } else if (!add_bytes(character, scratch) && unk_id_) {
      if (!options_.fuse_unk) flush();
      unknown = true;
    }
  }
  flush();
}

bool Bpe::add_bytes(std::string_view character, Scratch& scratch) const {
  if (!options_.byte_fallback) return false;
  const auto id_of_byte = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (!std::all_of(character.begin(), character.end(), id_of_byte)) return false;
  for (const char byte : character) {
    scratch.symbols.push_back({*id_of_byte(byte), -1, -1, true});
  }
  return true;
}

// Appends, and leaves it to the caller to make `heap` a heap again.
void Bpe::add_candidate(std::int32_t left, std::vector<Symbol>& symbols,
                        std::vector<Candidate>& heap) const {
  if (left < 0 || symbols[left].next < 0) return;
  const Merge* merge = merges_.find(symbols[left].id, symbols[symbols[left].next].id);
  if (merge != nullptr) heap.push_back({merge->rank, left, merge->merged_id});
}

// Merges the symbols of [begin, end), which no merge ties to the others.
void Bpe::merge(Scratch& scratch, std::int32_t begin, std::int32_t end) const {
  auto& [symbols, heap] = scratch;
  heap.clear();
  for (std::int32_t i = begin; i < end; ++i) {
    symbols[i].previous = i - 1 >= begin ? i - 1 : -1;
    symbols[i].next = i + 1 < end ? i + 1 : -1;
    add_candidate(i, symbols, heap);
  }
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Candidate best = heap.back();
    heap.pop_back();
    if (!apply(best, symbols)) continue;
    for (const std::int32_t left : {symbols[best.left].previous, best.left}) {
      const std::size_t count = heap.size();
      add_candidate(left, symbols, heap);
      if (heap.size() > count) std::push_heap(heap.begin(), heap.end(), comes_later);
    }
  }
}

// Candidates are not taken back when a neighbour changes; one whose pair is no longer there is
// passed over here.
bool Bpe::apply(const Candidate& candidate, std::vector<Symbol>& symbols) const {
  Symbol& left = symbols[candidate.left];
  if (!left.alive || left.next < 0) return false;
  Symbol& right = symbols[left.next];
  const Merge* merge = merges_.find(left.id, right.id);
  if (merge == nullptr || merge->merged_id != candidate.merged_id) return false;
  left.id = candidate.merged_id;
  left.next = right.next;
  right.alive = false;
  if (left.next >= 0) symbols[left.next].previous = candidate.left;
  return true;
}

}  // namespace terrace::engine
