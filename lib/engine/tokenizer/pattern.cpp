// See pattern.hpp.
#include "engine/tokenizer/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "engine/tokenizer/oniguruma.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace terrace::engine {
namespace {

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

void add(std::vector<Span>& spans, std::size_t begin, std::size_t end, bool is_match) {
  if (begin != end || is_match) spans.push_back({begin, end, is_match});
}

}  // namespace

struct Pattern::Compiled {
  std::unique_ptr<pcre2_code, Free> code;

  // Finds the first match that begins at `from` or later. The text is known to be valid UTF-8:
  // without NO_UTF_CHECK each call would check it all again, and a long text would take quadratic
  // time.
  bool find(std::string_view text, std::size_t from, pcre2_match_data* data) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found =
        pcre2_match(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter takes its stack from the heap
      found = pcre2_match(code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          data, nullptr);
    }
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
      throw PatternError("a pattern of the tokenizer gave up on this text: " + message_of(found));
    }
    return found >= 0;
  }
};

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

Pattern Pattern::regex(const std::string& text) {
  const std::unique_ptr<pcre2_compile_context, Free> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset,
                                     context.get()));
  if (compiled->code == nullptr) {
    throw PatternError("the regular expression '" + text + "' does not compile: " +
                       message_of(error) + " at byte " + std::to_string(offset));
  }
  // Where there is no JIT the interpreter gives the same matches, slower.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  Pattern pattern;
  pattern.compiled_ = std::move(compiled);
  return pattern;
}

Pattern Pattern::read(const JsonNode& node) {
  node.only({"String", "Regex"});
  const bool is_text = node.has("String");
  const std::string& text = node.string(is_text ? "String" : "Regex");
  if (text.empty()) node.fail("the pattern is empty, which would match everywhere");
  if (is_text) return literal(text);
  try {
    return regex(pcre2_from_oniguruma(text));
  } catch (const PatternError& error) {
    node.fail(error.what());
  }
}

bool Pattern::is_one_code_point() const {
  return compiled_ == nullptr && utf8::length_of(literal_[0]) == literal_.size();
}

std::vector<Span> Pattern::find(std::string_view text) const {
  return compiled_ == nullptr ? find_literal(text) : find_regex(text);
}

std::vector<Span> Pattern::find_literal(std::string_view text) const {
  std::vector<Span> spans;
  std::size_t done = 0;
  for (std::size_t at = text.find(literal_); at != std::string_view::npos;
       at = text.find(literal_, done)) {
    add(spans, done, at, false);
    done = at + literal_.size();
    add(spans, at, done, true);
  }
  add(spans, done, text.size(), false);
  return spans;
}

// An empty match right behind the previous match does not count; the search goes on one code point
// further.
std::vector<Span> Pattern::find_regex(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, Free> data(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  std::vector<Span> spans;
  std::size_t done = 0;
  std::size_t from = 0;
  bool matched_before = false;
  while (from <= text.size() && compiled_->find(text, from, data.get())) {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const auto [begin, end] = std::pair(bounds[0], bounds[1]);
    if (begin == end && matched_before && end == done) {
      from += from < text.size() ? utf8::length_of(text[from]) : 1;
      continue;
    }
    add(spans, done, begin, false);
    add(spans, begin, end, true);
    done = from = end;
    matched_before = true;
  }
  add(spans, done, text.size(), false);
  return spans;
}

bool Pattern::matches(std::string_view text) const {
  const std::vector<Span> spans = find(text);
  return std::any_of(spans.begin(), spans.end(), [](const Span& span) { return span.is_match; });
}

std::string Pattern::replace_all(std::string_view text, std::string_view content) const {
  std::string replaced;
  replaced.reserve(text.size());
  for (const Span& span : find(text)) {
    replaced += span.is_match ? content : text.substr(span.begin, span.end - span.begin);
  }
  return replaced;
}

namespace {

// A delimiter joins the span before it; of several in a row only the first does.
std::vector<Span> merge_with_previous(const std::vector<Span>& spans) {
  std::vector<Span> merged;
  bool after_match = false;
  for (const Span& span : spans) {
    if (span.is_match && !after_match && !merged.empty()) {
      merged.back().end = span.end;
    } else {
      merged.push_back(span);
    }
    after_match = span.is_match;
  }
  return merged;
}

// A delimiter joins the span behind it; of several in a row only the last does.
std::vector<Span> merge_with_next(const std::vector<Span>& spans) {
  std::vector<Span> merged;
  bool before_match = false;
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (span->is_match && !before_match && !merged.empty()) {
      merged.back().begin = span->begin;
    } else {
      merged.push_back(*span);
    }
    before_match = span->is_match;
  }
  std::reverse(merged.begin(), merged.end());
  return merged;
}

std::vector<Span> merge_runs(const std::vector<Span>& spans) {
  std::vector<Span> merged;
  for (const Span& span : spans) {
    if (!merged.empty() && merged.back().is_match == span.is_match) {
      merged.back().end = span.end;
    } else {
      merged.push_back(span);
    }
  }
  return merged;
}

}  // namespace

std::vector<Span> Pattern::split(std::string_view text, SplitBehavior behavior, bool invert) const {
  std::vector<Span> spans = find(text);
  if (invert) {
    for (Span& span : spans) span.is_match = !span.is_match;
  }
  if (behavior == SplitBehavior::merged_with_previous) spans = merge_with_previous(spans);
  if (behavior == SplitBehavior::merged_with_next) spans = merge_with_next(spans);
  if (behavior == SplitBehavior::contiguous) spans = merge_runs(spans);
  std::erase_if(spans, [&](const Span& span) {
    return span.begin == span.end || (behavior == SplitBehavior::removed && span.is_match);
  });
  return spans;
}

SplitBehavior read_split_behavior(const JsonNode& node) {
  static const std::pair<const char*, SplitBehavior> names[] = {
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  for (const auto& [name, behavior] : names) {
    if (node.as_string() == name) return behavior;
  }
  node.fail("'" + node.as_string() +
            "' is not one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

}  // namespace terrace::engine
