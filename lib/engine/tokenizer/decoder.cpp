// See decoder.hpp.
#include "engine/tokenizer/decoder.hpp"

#include <cctype>
#include <optional>

#include "engine/tokenizer/byte_alphabet.hpp"
#include "engine/tokenizer/pattern.hpp"
#include "engine/tokenizer/pretokenizer.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace terrace::engine {
namespace {

constexpr int sequence_depth_max = 16;

class JoinWithSpaces final : public DecodeStage {
 public:
  void push(std::string token, const EmitText& emit) override {
    emit(first_ ? std::move(token) : " " + token);
    first_ = false;
  }

 private:
  bool first_ = true;
};

class Replace final : public DecodeStage {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void push(std::string token, const EmitText& emit) override {
    emit(pattern_.replace_all(token, content_));
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Takes up to `start` and `stop` times `content` off the two ends of each token.
class Strip final : public DecodeStage {
 public:
  Strip(std::string content, std::uint64_t start, std::uint64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void push(std::string token, const EmitText& emit) override {
    std::string_view rest = token;
    for (std::uint64_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
      rest.remove_prefix(content_.size());
    }
    for (std::uint64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
      rest.remove_suffix(content_.size());
    }
    emit(std::string(rest));
  }

 private:
  std::string content_;
  std::uint64_t start_;
  std::uint64_t stop_;
};

// Strip behind Fuse: the tokens are one text, of which only the beginning is stripped, so that
// nothing has to wait.
class StripBeginning final : public DecodeStage {
 public:
  StripBeginning(std::string content, std::uint64_t count)
      : content_(std::move(content)), left_(count) {}
  void push(std::string token, const EmitText& emit) override {
    std::string_view rest = token;
    for (; left_ > 0 && rest.starts_with(content_); --left_) rest.remove_prefix(content_.size());
    if (!rest.empty()) left_ = 0;
    emit(std::string(rest));
  }

 private:
  std::string content_;
  std::uint64_t left_;
};

class Metaspace final : public DecodeStage {
 public:
  Metaspace(std::string replacement, bool prepended)
      : pattern_(Pattern::literal(std::move(replacement))), drop_(prepended) {}
  // The first token loses the meta space that the pre-tokenizer put before it.
  void push(std::string token, const EmitText& emit) override {
    emit(pattern_.replace_all(token, drop_ ? "" : " "));
    drop_ = false;
  }

 private:
  Pattern pattern_;
  bool drop_;
};

// Holds everything back until the end: for steps behind Fuse that need to see the whole text.
class Collect final : public DecodeStage {
 public:
  void push(std::string token, const EmitText&) override { text_ += token; }
  void finish(const EmitText& emit) override { emit(std::move(text_)); }

 private:
  std::string text_;
};

// The byte of a token "<0x0A>".
std::optional<char> byte_of_token(std::string_view token) {
  const auto is_hex = [&](std::size_t i) {
    return std::isxdigit(static_cast<unsigned char>(token[i])) != 0;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>' || !is_hex(3) ||
      !is_hex(4)) {
    return std::nullopt;
  }
  return static_cast<char>(std::stoi(std::string(token.substr(3, 2)), nullptr, 16));
}

std::string replacements(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += utf8::replacement;
  return text;
}

class ByteFallback final : public DecodeStage {
 public:
  explicit ByteFallback(ByteRuns runs) : runs_(runs) {}
  void push(std::string token, const EmitText& emit) override {
    const std::optional<char> byte = byte_of_token(token);
    if (!byte) {
      finish(emit);
      emit(std::move(token));
      return;
    }
    pending_ += *byte;
    if (runs_ == ByteRuns::eager) emit_complete(emit);
  }

  void finish(const EmitText& emit) override {
    if (pending_.empty()) return;
    emit(is_valid(pending_) ? pending_ : replacements(pending_.size()));
    pending_.clear();
  }

 private:
  static bool is_valid(std::string_view bytes) {
    while (!bytes.empty()) {
      const utf8::Scan next = utf8::scan(bytes);
      if (next.kind != utf8::Kind::valid) return false;
      bytes.remove_prefix(next.length);
    }
    return true;
  }

  void emit_complete(const EmitText& emit) {
    while (!pending_.empty()) {
      const utf8::Scan next = utf8::scan(pending_);
      if (next.kind == utf8::Kind::incomplete) return;
      emit(next.kind == utf8::Kind::valid ? pending_.substr(0, next.length)
                                          : replacements(next.length));
      pending_.erase(0, next.length);
    }
  }

  ByteRuns runs_;
  std::string pending_;
};

// Back from the byte alphabet. The bytes of all tokens are one text; ill-formed parts of it become
// U+FFFD.
class ByteLevel final : public DecodeStage {
 public:
  void push(std::string token, const EmitText& emit) override {
    append_bytes(token);
    std::string text;
    std::size_t at = 0;
    while (at < pending_.size()) {
      const std::string_view rest = std::string_view(pending_).substr(at);
      const utf8::Scan next = utf8::scan(rest);
      if (next.kind == utf8::Kind::incomplete) break;
      text += next.kind == utf8::Kind::valid ? rest.substr(0, next.length) : utf8::replacement;
      at += next.length;
    }
    pending_.erase(0, at);
    emit(std::move(text));
  }

  void finish(const EmitText& emit) override {
    if (!pending_.empty()) emit(std::string(utf8::replacement));
    pending_.clear();
  }

 private:
  // A token with any character from outside the alphabet is an added token and stands for itself.
  void append_bytes(std::string_view token) {
    std::string bytes;
    for (std::size_t at = 0; at < token.size(); at += utf8::length_of(token[at])) {
      const auto byte = byte_alphabet::byte_of(utf8::decode(token.substr(at)));
      if (!byte) {
        pending_ += token;
        return;
      }
      bytes += static_cast<char>(*byte);
    }
    pending_ += bytes;
  }

  std::string pending_;
};

}  // namespace

struct Decoder::Building {
  std::vector<MakeStage> stages;
  bool fused = false;  // from here on the tokens are one text

  template <class Stage, class... Arguments>
  void add(Arguments... arguments) {
    stages.push_back([=](ByteRuns) { return std::make_unique<Stage>(arguments...); });
  }
  // For a step that cannot work on a fused text part by part.
  void wait_for_all() {
    if (fused) add<Collect>();
  }
};

Decoder::Decoder() {
  stages_.push_back([](ByteRuns) { return std::make_unique<JoinWithSpaces>(); });
}

Decoder Decoder::byte_level() {
  Decoder decoder;
  decoder.stages_ = {[](ByteRuns) { return std::make_unique<ByteLevel>(); }};
  return decoder;
}

Decoder Decoder::read(const JsonNode& node) {
  Building building;
  read_into(node, building, 0);
  Decoder decoder;
  decoder.stages_ = std::move(building.stages);
  return decoder;
}

namespace {

std::string read_strip_content(const JsonNode& node) {
  const std::string& content = node.string("content");
  if (content.empty() || utf8::length_of(content[0]) != content.size()) {
    node.fail("content '" + content + "' must be one character");
  }
  return content;
}

}  // namespace

void Decoder::read_strip(const JsonNode& node, Building& building) {
  node.only({"type", "content", "start", "stop"});
  const std::uint64_t start = node.unsigned_number("start");
  const std::uint64_t stop = node.unsigned_number("stop");
  if (building.fused && stop == 0) {
    building.add<StripBeginning>(read_strip_content(node), start);
    return;
  }
  building.wait_for_all();
  building.add<Strip>(read_strip_content(node), start, stop);
}

void Decoder::read_into(const JsonNode& node, Building& building, int depth) {
  const std::string& type = node.string("type");
  if (depth > sequence_depth_max) node.fail("sequences are nested too deeply");
  if (type == "Sequence") {
    node.only({"type", "decoders"});
    for (const JsonNode& item : node.items("decoders")) read_into(item, building, depth + 1);
  } else if (type == "Replace") {
    node.only({"type", "pattern", "content"});
    Pattern pattern = Pattern::read(node.at("pattern"));
    if (!pattern.is_one_code_point()) building.wait_for_all();
    building.add<Replace>(std::move(pattern), node.string("content"));
  } else if (type == "Strip") {
    read_strip(node, building);
  } else if (type == "Metaspace") {
    node.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    building.wait_for_all();
    building.add<Metaspace>(read_replacement(node),
                            read_prepend_scheme(node) != PrependScheme::never);
  } else if (type == "ByteFallback") {
    node.only({"type"});
    building.wait_for_all();
    building.stages.push_back(
        [](ByteRuns byte_runs) { return std::make_unique<ByteFallback>(byte_runs); });
  } else if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    building.wait_for_all();
    building.add<ByteLevel>();
    building.fused = true;
  } else if (type == "Fuse") {
    node.only({"type"});
    building.fused = true;
  } else {
    node.fail("decoder '" + type +
              "' is not supported; supported are Sequence, Replace, ByteFallback, Fuse, Strip, "
              "ByteLevel and Metaspace");
  }
}

DecoderRun Decoder::start(ByteRuns byte_runs) const {
  std::vector<std::unique_ptr<DecodeStage>> stages;
  stages.reserve(stages_.size());
  for (const MakeStage& make : stages_) stages.push_back(make(byte_runs));
  return DecoderRun(std::move(stages));
}

void DecoderRun::feed(std::size_t stage, std::string token, std::string& text) {
  if (stage == stages_.size()) {
    text += token;
    return;
  }
  stages_[stage]->push(std::move(token),
                       [&](std::string next) { feed(stage + 1, std::move(next), text); });
}

std::string DecoderRun::push(std::string token) {
  std::string text;
  feed(0, std::move(token), text);
  return text;
}

std::string DecoderRun::finish() {
  std::string text;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    stages_[stage]->finish([&](std::string next) { feed(stage + 1, std::move(next), text); });
  }
  return text;
}

}  // namespace terrace::engine
