// See pretokenizer.hpp.
#include "engine/tokenizer/pretokenizer.hpp"

#include "engine/tokenizer/byte_alphabet.hpp"
#include "engine/tokenizer/oniguruma.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace terrace::engine {
namespace {

constexpr int sequence_depth_max = 16;

// What GPT-2 cut its texts by; ByteLevel brings it along.
const Pattern& gpt2_pattern() {
  static const Pattern pattern = Pattern::regex(pcre2_from_oniguruma(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"));
  return pattern;
}

void cut(const Piece& piece, const std::vector<Span>& spans, std::vector<Piece>& pieces) {
  for (const Span& span : spans) {
    pieces.push_back(
        {piece.text.substr(span.begin, span.end - span.begin), piece.at_start && span.begin == 0});
  }
}

void run(const PreTokenizer::Split& step, Piece piece, std::vector<Piece>& pieces) {
  cut(piece, step.pattern.split(piece.text, step.behavior, step.invert), pieces);
}

void run(const PreTokenizer::ByteLevel& step, Piece piece, std::vector<Piece>& pieces) {
  if (step.add_prefix_space && !piece.text.starts_with(' '))
    piece.text.insert(piece.text.begin(), ' ');
  const std::size_t first = pieces.size();
  if (step.use_regex) {
    cut(piece, gpt2_pattern().split(piece.text, SplitBehavior::isolated), pieces);
  } else {
    pieces.push_back(std::move(piece));
  }
  for (std::size_t i = first; i < pieces.size(); ++i) {
    pieces[i].text = byte_alphabet::encode(pieces[i].text);
  }
}

void run(const PreTokenizer::Metaspace& step, Piece piece, std::vector<Piece>& pieces) {
  static const Pattern space = Pattern::literal(" ");
  piece.text = space.replace_all(piece.text, step.replacement);
  const bool prepends = step.scheme == PrependScheme::always ||
                        (step.scheme == PrependScheme::first && piece.at_start);
  if (prepends && !piece.text.starts_with(step.replacement)) piece.text.insert(0, step.replacement);
  if (!step.split) {
    pieces.push_back(std::move(piece));
    return;
  }
  const Pattern delimiter = Pattern::literal(step.replacement);
  cut(piece, delimiter.split(piece.text, SplitBehavior::merged_with_next), pieces);
}

PreTokenizer::Split read_split(const JsonNode& node) {
  node.only({"type", "pattern", "behavior", "invert"});
  return {Pattern::read(node.at("pattern")), read_split_behavior(node.at("behavior")),
          node.boolean("invert")};
}

PreTokenizer::ByteLevel read_byte_level(const JsonNode& node) {
  node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  return {node.boolean("add_prefix_space"), node.boolean_or("use_regex", true)};
}

PreTokenizer::Metaspace read_metaspace(const JsonNode& node) {
  node.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  return {read_replacement(node), read_prepend_scheme(node), node.boolean_or("split", true)};
}

PreTokenizer::Split read_digits(const JsonNode& node) {
  node.only({"type", "individual_digits"});
  const bool single = node.boolean("individual_digits");
  return {Pattern::regex(R"(\p{N})"), single ? SplitBehavior::isolated : SplitBehavior::contiguous,
          false};
}

PreTokenizer::Split read_punctuation(const JsonNode& node) {
  node.only({"type", "behavior"});
  const SplitBehavior behavior =
      node.has("behavior") ? read_split_behavior(node.at("behavior")) : SplitBehavior::isolated;
  return {Pattern::regex(R"([!-/:-@\[-`{-~\p{P}])"), behavior, false};
}

PreTokenizer::Split read_whitespace(const JsonNode& node) {
  node.only({"type"});
  const std::string word(rust_word_class);
  return {Pattern::regex("[" + word + "]+|[^" + word + R"(\p{White_Space}]+)"),
          SplitBehavior::removed, true};
}

PreTokenizer::Split read_whitespace_split(const JsonNode& node) {
  node.only({"type"});
  return {Pattern::regex(R"(\p{White_Space})"), SplitBehavior::removed, false};
}

}  // namespace

PrependScheme read_prepend_scheme(const JsonNode& node) {
  const std::string scheme = node.string_or("prepend_scheme", "always");
  if (scheme != "always" && scheme != "never" && scheme != "first") {
    node.fail("prepend_scheme '" + scheme + "' is not one of always, never, first");
  }
  const bool no_prefix_space = !node.boolean_or("add_prefix_space", true);
  if (no_prefix_space && node.has("prepend_scheme") && scheme != "never") {
    node.fail("add_prefix_space is false, but prepend_scheme is '" + scheme + "'");
  }
  if (no_prefix_space || scheme == "never") return PrependScheme::never;
  return scheme == "first" ? PrependScheme::first : PrependScheme::always;
}

std::string read_replacement(const JsonNode& node) {
  const std::string& replacement = node.string("replacement");
  if (replacement.empty() || utf8::length_of(replacement[0]) != replacement.size()) {
    node.fail("replacement '" + replacement + "' must be one character");
  }
  return replacement;
}

PreTokenizer PreTokenizer::read(const JsonNode& node) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.read_into(node, 0);
  return pre_tokenizer;
}

void PreTokenizer::read_into(const JsonNode& node, int depth) {
  const std::string& type = node.string("type");
  if (depth > sequence_depth_max) node.fail("sequences are nested too deeply");
  if (type == "Sequence") {
    node.only({"type", "pretokenizers"});
    for (const JsonNode& item : node.items("pretokenizers")) read_into(item, depth + 1);
  } else if (type == "Split") {
    steps_.push_back(read_split(node));
  } else if (type == "ByteLevel") {
    steps_.push_back(read_byte_level(node));
  } else if (type == "Metaspace") {
    steps_.push_back(read_metaspace(node));
  } else if (type == "Digits") {
    steps_.push_back(read_digits(node));
  } else if (type == "Punctuation") {
    steps_.push_back(read_punctuation(node));
  } else if (type == "Whitespace") {
    steps_.push_back(read_whitespace(node));
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(read_whitespace_split(node));
  } else {
    node.fail("pre-tokenizer '" + type +
              "' is not supported; supported are Sequence, Split, ByteLevel, Metaspace, Digits, "
              "Punctuation, Whitespace and WhitespaceSplit");
  }
}

std::vector<Piece> PreTokenizer::apply(Piece text) const {
  std::vector<Piece> pieces;
  pieces.push_back(std::move(text));
  for (const Step& step : steps_) {
    std::vector<Piece> next;
    next.reserve(pieces.size());
    for (Piece& piece : pieces) {
      std::visit([&](const auto& kind) { run(kind, std::move(piece), next); }, step);
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace terrace::engine
