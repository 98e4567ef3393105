// See tokenizer.hpp. encode() reads top-down: added tokens, normalizer, added tokens that are
// looked for in normalized text, pre-tokenizer, model.
#include "engine/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <stdexcept>

#include "engine/tokenizer/tokenizer_data.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace terrace::engine {
namespace {

// One encode() call: the ids so far and the buffers that its pieces share.
class Encoding {
 public:
  explicit Encoding(const Tokenizer::Data& data) : data_(data) {}

  void add_text(std::string_view text) {
    for (const Segment& segment : data_.added_tokens.split_raw(text)) {
      segment.id ? ids_.push_back(*segment.id) : add_raw(segment);
    }
  }
  void add_ids(const std::vector<std::uint32_t>& ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  std::vector<std::uint32_t> take() { return std::move(ids_); }

 private:
  void add_raw(const Segment& raw) {
    const std::string normalized = data_.normalizer.apply(std::string(raw.text));
    for (const Segment& segment : data_.added_tokens.split_normalized(normalized)) {
      if (segment.id) {
        ids_.push_back(*segment.id);
      } else {
        add_normalized({std::string(segment.text), raw.at_start && segment.at_start});
      }
    }
  }

  void add_normalized(Piece text) {
    for (const Piece& piece : data_.pre_tokenizer.apply(std::move(text))) {
      data_.model.encode(piece.text, ids_, scratch_);
    }
  }

  const Tokenizer::Data& data_;
  std::vector<std::uint32_t> ids_;
  Bpe::Scratch scratch_;
};

// The decoder's input for `id`: nothing for ids without a token and for special ones that are
// skipped.
const std::string* visible_text(const Tokenizer::Data& data, std::uint32_t id, bool skip_special) {
  const bool skipped = skip_special && data.added_tokens.is_special(id);
  return skipped ? nullptr : data.text_of(id);
}

}  // namespace

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  if (text.size() > text_bytes_max) throw std::length_error("the text is longer than 1 GiB");
  Encoding encoding(*data_);
  if (add_special_tokens) encoding.add_ids(data_->post_processor.prefix);
  encoding.add_text(utf8::sanitize(text));
  if (add_special_tokens) encoding.add_ids(data_->post_processor.suffix);
  return encoding.take();
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool skip_special_tokens) const {
  DecoderRun run = data_->decoder.start(ByteRuns::whole);
  std::string text;
  for (const std::uint32_t id : ids) {
    const std::string* token = visible_text(*data_, id, skip_special_tokens);
    if (token != nullptr) text += run.push(*token);
  }
  return text + run.finish();
}

std::optional<std::uint32_t> Tokenizer::bos_id() const {
  return data_->bos_id;
}

const std::vector<std::uint32_t>& Tokenizer::eos_ids() const {
  return data_->eos_ids;
}

std::optional<std::uint32_t> Tokenizer::eos_id() const {
  if (data_->eos_ids.empty()) return std::nullopt;
  return data_->eos_ids.front();
}

std::uint32_t Tokenizer::vocab_size() const {
  return std::max(data_->model.id_end(), data_->added_tokens.id_end());
}

std::optional<std::uint32_t> Tokenizer::token_to_id(std::string_view token) const {
  return data_->id_of(token);
}

bool Tokenizer::is_special(std::uint32_t id) const {
  return data_->added_tokens.is_special(id);
}

const std::array<std::uint8_t, 32>& Tokenizer::digest() const {
  return data_->digest;
}

struct StreamDecoder::State {
  std::shared_ptr<const Tokenizer::Data> data;
  bool skip_special_tokens;
  DecoderRun run;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, std::span<const std::uint32_t> context,
                             bool skip_special_tokens)
    : state_(new State{tokenizer.data_, skip_special_tokens,
                       tokenizer.data_->decoder.start(ByteRuns::eager)}) {
  for (const std::uint32_t id : context) push(id);
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(std::uint32_t id) {
  const std::string* token = visible_text(*state_->data, id, state_->skip_special_tokens);
  return token != nullptr ? state_->run.push(*token) : std::string();
}

std::string StreamDecoder::finish() {
  return state_->run.finish();
}

}  // namespace terrace::engine
