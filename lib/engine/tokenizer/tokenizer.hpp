// Text to token ids and back, from the tokenizer files of a Hugging Face model directory: the same
// ids and the same text as Hugging Face's tokenizers give. START HERE. What a file asks for and
// this reader does not know is refused at load, since it could change token ids. Never writes,
// never keeps state between calls. A Tokenizer is a handle on immutable data: cheap to copy, const
// use from any number of threads. A StreamDecoder belongs to one thread.
//
// Supported: BPE (byte fallback, byte level, ignore_merges, both spellings of merges); normalizers
// Prepend, Replace, Strip, NFC, NFD, NFKC, NFKD; pre-tokenizers Split, ByteLevel, Metaspace,
// Digits, Punctuation, Whitespace, WhitespaceSplit; post-processors TemplateProcessing, ByteLevel;
// decoders Replace, ByteFallback, Fuse, Strip, ByteLevel, Metaspace; and sequences of each. Not:
// other models, truncation, padding to a length, dropout, subword prefixes and suffixes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/load_error.hpp"

namespace terrace::engine {

class Tokenizer {
 public:
  // Reads tokenizer.json, and where they are there tokenizer_config.json (flags and tokens that
  // transformers takes from it), generation_config.json and config.json (end-of-sequence ids).
  // Throws LoadError.
  static Tokenizer load(const std::filesystem::path& model_dir);

  // The tokenizer of the built-in models: id = byte value, 256 = beginning, 257 = end of sequence;
  // 258 ids. Text never encodes to 256 or 257, except that add_special_tokens puts 256 first.
  static Tokenizer bytes();
  static constexpr std::uint32_t bytes_bos_id = 256;
  static constexpr std::uint32_t bytes_eos_id = 257;

  // Special tokens that stand in the text become their ids. Ill-formed UTF-8 counts as U+FFFD, one
  // for each maximal ill-formed part. Throws std::length_error above text_bytes_max, and
  // std::runtime_error where a pattern of the tokenizer.json needs more steps on this text than
  // PCRE2 allows.
  std::vector<std::uint32_t> encode(std::string_view text, bool add_special_tokens = true) const;
  static constexpr std::size_t text_bytes_max = std::size_t{1} << 30;

  // Always valid UTF-8: bytes that are none become U+FFFD. Ids that no token has give no text. Does
  // not do what transformers calls clean_up_tokenization_spaces.
  std::string decode(std::span<const std::uint32_t> ids, bool skip_special_tokens = true) const;

  // The token that a model's text begins with; none where the files name none.
  std::optional<std::uint32_t> bos_id() const;
  // The tokens that end a generation: tokenizer_config.json's first, then those of
  // generation_config.json, or config.json where there is no such file. May be empty.
  const std::vector<std::uint32_t>& eos_ids() const;
  std::optional<std::uint32_t> eos_id() const;

  // One more than the largest id: a model needs at least that many embeddings. (Smaller ids may be
  // unused.)
  std::uint32_t vocab_size() const;
  std::optional<std::uint32_t> token_to_id(std::string_view token) const;
  bool is_special(std::uint32_t id) const;

  // SHA-256 over all that decides which ids a text gets: the bytes of tokenizer.json, and the
  // members of tokenizer_config.json that are read for encoding.
  const std::array<std::uint8_t, 32>& digest() const;

  struct Data;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

  std::shared_ptr<const Data> data_;
};

// Text from ids that come one by one. Each push() gives the text that is final then, always whole
// code points. All pieces together are decode() of all ids, with one exception: where byte tokens
// (<0xE4>) are no valid UTF-8, the code points of that run that were complete have been handed out
// and stay, while decode() makes the whole run U+FFFD.
class StreamDecoder {
 public:
  // `context` is what the ids follow, a prompt as a rule: its text is not given again, but it
  // decides whether the first word keeps its space.
  explicit StreamDecoder(const Tokenizer& tokenizer, std::span<const std::uint32_t> context = {},
                         bool skip_special_tokens = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  std::string push(std::uint32_t id);
  // What was held back, when no more ids come. Call once.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace terrace::engine
