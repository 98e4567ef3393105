// See oniguruma.hpp. Differences that matter, from both manuals and from comparing the two on every
// code point:
//   \s     Oniguruma: White_Space. PCRE2 leaves out U+0085 and adds U+180E.
//   \w \b  Oniguruma: Alphabetic, marks, decimal digits, connectors. PCRE2 10.42: letters, numbers,
//   underscore. \h \v  Oniguruma: hexadecimal digit, vertical tab. PCRE2: horizontal, vertical
//   white space. \p{Han}  Oniguruma: the script. PCRE2 10.42: script extensions. {n,m}+ Oniguruma:
//   a repeated repetition. PCRE2: possessive.   {,n}  Oniguruma: {0,n}. PCRE2 10.42: literal.
//   (?m)   Oniguruma: the dot matches a line feed. PCRE2: that is (?s).
#include "engine/tokenizer/oniguruma.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

namespace terrace::engine {
namespace {

constexpr std::string_view word_class = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view latin1_numbers = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& construct) const {
    throw PatternError("the regular expression '" + std::string(in_) + "' has " + construct +
                       " at byte " + std::to_string(at_) + ", which is not supported");
  }

  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  void copy(std::size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  void step() {
    switch (in_[at_]) {
      case '\\':
        atom_begin_ = out_.size();
        return escape(false);
      case '[':
        atom_begin_ = out_.size();
        return character_class();
      case '(':
        return open_group();
      case ')':
        if (!groups_.empty()) {
          atom_begin_ = groups_.back();
          groups_.pop_back();
        }
        return copy(1);
      case '{':
        return interval();
      case '*':
      case '+':
      case '?':
        return copy(1);
      default:
        atom_begin_ = out_.size();
        return copy(1);
    }
  }

  void open_group() {
    groups_.push_back(out_.size());
    if (!next_is("(?")) return copy(1);
    if (next_is("(?<=") || next_is("(?<!")) return copy(4);
    if (next_is("(?:") || next_is("(?=") || next_is("(?!") || next_is("(?>")) return copy(3);
    options();
  }

  // (?i:...), and (?i) where it stands first: further in, Oniguruma and PCRE2 disagree on how far
  // it reaches.
  void options() {
    const std::size_t end = in_.find_first_not_of("im-", at_ + 2);
    if (end == at_ + 2 || end == std::string_view::npos || (in_[end] != ':' && in_[end] != ')')) {
      refuse("a group '" + std::string(in_.substr(at_, 4)) + "'");
    }
    const bool alone = in_[end] == ')';
    if (alone && at_ != 0) refuse("an option that does not stand first");
    std::string text(in_.substr(at_, end + 1 - at_));
    std::replace(text.begin(), text.end(), 'm', 's');
    out_ += text;
    at_ = end + 1;
    if (alone) groups_.pop_back();
  }

  void interval() {
    const std::size_t end = in_.find_first_not_of("0123456789,", at_ + 1);
    const bool is_interval = end != std::string_view::npos && in_[end] == '}' && end > at_ + 1;
    if (!is_interval) {
      atom_begin_ = out_.size();
      return copy(1);
    }
    std::string text(in_.substr(at_, end + 1 - at_));
    if (text.starts_with("{,")) text.insert(text.begin() + 1, '0');
    out_ += text;
    at_ = end + 1;
    if (next_is("+")) {
      out_.insert(atom_begin_, "(?:");
      out_ += ")+";
      ++at_;
    } else if (next_is("?") && text.find(',') == std::string::npos) {
      refuse("'{n}?'");
    }
  }

  void escape(bool in_class) {
    if (at_ + 1 >= in_.size()) refuse("a lone backslash");
    const char name = in_[at_ + 1];
    if (!std::isalpha(static_cast<unsigned char>(name))) return copy(2);
    if (name == 'p' || name == 'P') return property();
    if (name == 'x') return hexadecimal();
    if (name == 'u') return code_point();
    const std::string_view same = in_class ? "dDnrtfea" : "dDnrtfeaAzZRX";
    if (same.find(name) != std::string_view::npos) return copy(2);
    const std::string translated = translate(name, in_class);
    if (translated.empty()) refuse(std::string("an escape '\\") + name + "'");
    out_ += translated;
    at_ += 2;
  }

  // What the escape is in PCRE2; empty where it is not translated.
  static std::string translate(char name, bool in_class) {
    switch (name) {
      case 's':
        return R"(\p{White_Space})";
      case 'S':
        return R"(\P{White_Space})";
      case 'v':
        return R"(\x{0B})";
      case 'h':
        return in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
      case 'w':
        return in_class ? std::string(word_class) : word_set("[");
      default:
        return in_class ? std::string() : translate_outside_class(name);
    }
  }

  static std::string translate_outside_class(char name) {
    switch (name) {
      case 'H':
        return "[^0-9a-fA-F]";
      case 'W':
        return word_set("[^");
      case 'b':
        return around_word("(?<=", "(?!") + around_word("|(?<!", "(?=") + ")";
      case 'B':
        return around_word("(?<=", "(?=") + around_word("|(?<!", "(?!") + ")";
      default:
        return "";
    }
  }

  // Word characters outside a class; `open` is "[" or "[^".
  static std::string word_set(std::string_view open) {
    std::string set(open);
    set.append(word_class).append(latin1_numbers).append("]");
    return set;
  }

  // A condition on the character before, and one on the character behind, this place.
  static std::string around_word(std::string_view before, std::string_view behind) {
    std::string condition(before.starts_with("|") ? "" : "(?:");
    condition.append(before).append(word_set("[")).append(")");
    condition.append(behind).append(word_set("[")).append(")");
    return condition;
  }

  // General categories have one or two letters and the word properties are the same in both; any
  // other name that PCRE2 could take for a script must say that it means the script itself.
  void property() {
    const std::size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string_view::npos) {
      refuse("a property without braces");
    }
    std::string name(in_.substr(at_ + 3, end - at_ - 3));
    const bool negated = name.starts_with('^');
    if (negated) name.erase(0, 1);
    static constexpr std::string_view shared[] = {"Alphabetic", "White_Space", "Uppercase",
                                                  "Lowercase",  "Any",         "Emoji"};
    const bool is_script = name.size() > 2 && std::find(std::begin(shared), std::end(shared),
                                                        name) == std::end(shared);
    out_ += in_.substr(at_, 3);
    out_ += std::string(negated ? "^" : "") + (is_script ? "sc:" : "") + name + "}";
    at_ = end + 1;
  }

  void hexadecimal() {
    const std::size_t end = next_is("\\x{") ? in_.find('}', at_) : std::string_view::npos;
    copy(end == std::string_view::npos ? 2 : end + 1 - at_);
  }

  void code_point() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    const bool is_hex = digits.size() == 4 && std::all_of(digits.begin(), digits.end(), [](char c) {
                          return std::isxdigit(static_cast<unsigned char>(c)) != 0;
                        });
    if (!is_hex) refuse("a '\\u' without four hexadecimal digits");
    out_ += "\\x{" + std::string(digits) + "}";
    at_ += 6;
  }

  void character_class() {
    copy(next_is("[^") ? 2 : 1);
    bool first = true;
    while (at_ < in_.size() && (first || in_[at_] != ']')) {
      first = false;
      if (in_[at_] == '[') refuse("a character class within a character class");
      if (next_is("&&")) refuse("an intersection of character classes");
      in_[at_] == '\\' ? escape(true) : copy(1);
    }
    if (at_ >= in_.size()) refuse("a character class without its end");
    copy(1);
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_begin_ = 0;  // where the last atom begins in out_: what a quantifier applies to
  std::vector<std::size_t> groups_;  // where the open groups begin in out_
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace terrace::engine
