// See normalizer.hpp.
#include "engine/tokenizer/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <stdexcept>

#include "engine/tokenizer/utf8.hpp"

namespace terrace::engine {
namespace {

constexpr int sequence_depth_max = 16;

std::string run(const Normalizer::Prepend& step, std::string text) {
  return text.empty() ? text : step.content + text;
}

std::string run(const Normalizer::Replace& step, std::string text) {
  return step.pattern.replace_all(text, step.content);
}

std::string run(const Normalizer::Strip& step, std::string text) {
  if (step.right) text.resize(text.size() - utf8::trailing_white_space(text));
  if (step.left) text.erase(0, utf8::leading_white_space(text));
  return text;
}

int combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Marks in a row go by their combining class, equal ones stay in order. A stable sort of each run,
// since the library's own sort takes quadratic time and a prompt may be one long run of marks.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    begin = std::find_if_not(begin, code_points.end(), is_starter);
    const auto end = std::find_if(begin, code_points.end(), is_starter);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

std::vector<utf8proc_int32_t> decompose(std::string_view text, bool compatibility) {
  constexpr int expansion_max = 32;  // the longest decomposition of one code point has 18
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  utf8proc_int32_t parts[expansion_max];
  for (std::size_t at = 0; at < text.size(); at += utf8::length_of(text[at])) {
    int boundary = 0;
    const auto code_point = static_cast<utf8proc_int32_t>(utf8::decode(text.substr(at)));
    const auto count =
        utf8proc_decompose_char(code_point, parts, expansion_max, options, &boundary);
    if (count < 0 || count > expansion_max)
      throw std::runtime_error("Unicode decomposition failed");
    code_points.insert(code_points.end(), parts, parts + count);
  }
  return code_points;
}

std::string run(const Normalizer::Unicode& step, std::string text) {
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return text;  // every form leaves ASCII alone
  std::vector<utf8proc_int32_t> code_points = decompose(text, step.compatibility);
  order_marks(code_points);
  if (step.compose) {
    const auto count = utf8proc_normalize_utf32(
        code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (count < 0) throw std::runtime_error("Unicode composition failed");
    code_points.resize(static_cast<std::size_t>(count));
  }
  std::string normalized;
  normalized.reserve(text.size());
  for (const utf8proc_int32_t code_point : code_points) {
    utf8::append(normalized, static_cast<char32_t>(code_point));
  }
  return normalized;
}

}  // namespace

Normalizer Normalizer::read(const JsonNode& node) {
  Normalizer normalizer;
  normalizer.read_into(node, 0);
  return normalizer;
}

void Normalizer::read_into(const JsonNode& node, int depth) {
  const std::string& type = node.string("type");
  if (depth > sequence_depth_max) node.fail("sequences are nested too deeply");
  if (type == "Sequence") {
    node.only({"type", "normalizers"});
    for (const JsonNode& item : node.items("normalizers")) read_into(item, depth + 1);
  } else if (type == "Prepend") {
    node.only({"type", "prepend"});
    steps_.push_back(Prepend{node.string("prepend")});
  } else if (type == "Replace") {
    node.only({"type", "pattern", "content"});
    steps_.push_back(Replace{Pattern::read(node.at("pattern")), node.string("content")});
  } else if (type == "Strip") {
    node.only({"type", "strip_left", "strip_right"});
    steps_.push_back(Strip{node.boolean("strip_left"), node.boolean("strip_right")});
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    node.only({"type"});
    steps_.push_back(Unicode{type.size() == 4, type.back() == 'C'});
  } else {
    node.fail("normalizer '" + type +
              "' is not supported; supported are Sequence, Prepend, Replace, Strip, NFC, NFD, NFKC "
              "and NFKD");
  }
}

std::string Normalizer::apply(std::string text) const {
  for (const Step& step : steps_) {
    text = std::visit([&](const auto& kind) { return run(kind, std::move(text)); }, step);
  }
  return text;
}

}  // namespace terrace::engine
