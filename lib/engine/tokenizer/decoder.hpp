// The "decoder" of a tokenizer.json: turns the texts of tokens into text, one token after the
// other, and hands out what is final at once. One pipeline serves whole decoding and streaming, so
// that the two cannot drift apart. An unknown decoder is refused when it is read. A Decoder is
// immutable and shared by threads; each DecoderRun belongs to one of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/tokenizer/json_node.hpp"

namespace terrace::engine {

// How a run of byte tokens (<0xE4>) becomes text where it is not valid UTF-8.
enum class ByteRuns {
  whole,  // as Hugging Face: one bad byte makes every byte of the run a U+FFFD. Text waits for the
          // end of the run.
  eager,  // for streaming: each code point goes out once it is complete; only bytes that fit
          // nowhere become U+FFFD
};

using EmitText = std::function<void(std::string)>;

// One step of a decoder while it runs.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(std::string token, const EmitText& emit) = 0;
  virtual void finish(const EmitText&) {}
};

class DecoderRun {
 public:
  explicit DecoderRun(std::vector<std::unique_ptr<DecodeStage>> stages)
      : stages_(std::move(stages)) {}
  // The text that is final now that `token` has come, always whole code points. REQUIRES: valid
  // UTF-8.
  std::string push(std::string token);
  // What was held back. Nothing may be pushed afterwards.
  std::string finish();

 private:
  void feed(std::size_t stage, std::string token, std::string& text);

  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

class Decoder {
 public:
  // No decoder: tokens with spaces between them, as Hugging Face does.
  Decoder();
  static Decoder byte_level();
  // Throws LoadError.
  static Decoder read(const JsonNode& node);

  DecoderRun start(ByteRuns byte_runs) const;

 private:
  using MakeStage = std::function<std::unique_ptr<DecodeStage>(ByteRuns)>;
  struct Building;
  static void read_strip(const JsonNode& node, Building& building);
  static void read_into(const JsonNode& node, Building& building, int depth);

  std::vector<MakeStage> stages_;
};

}  // namespace terrace::engine
