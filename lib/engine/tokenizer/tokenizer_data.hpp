// What a Tokenizer holds, filled by tokenizer_loader.cpp and read by tokenizer.cpp. Private to this
// folder. Immutable once a Tokenizer holds it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/tokenizer/added_tokens.hpp"
#include "engine/tokenizer/bpe.hpp"
#include "engine/tokenizer/decoder.hpp"
#include "engine/tokenizer/normalizer.hpp"
#include "engine/tokenizer/post_processor.hpp"
#include "engine/tokenizer/pretokenizer.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace terrace::engine {

struct Tokenizer::Data {
  Bpe model;
  AddedTokens added_tokens = {};
  Normalizer normalizer = {};
  PreTokenizer pre_tokenizer = {};
  PostProcessor post_processor = {};
  Decoder decoder = {};
  std::optional<std::uint32_t> bos_id = {};
  std::vector<std::uint32_t> eos_ids = {};
  std::array<std::uint8_t, 32> digest = {};

  // What decoders see for the token; null where no token has that id.
  const std::string* text_of(std::uint32_t id) const {
    const std::string* added = added_tokens.text_of(id);
    return added != nullptr ? added : model.text_of(id);
  }
  std::optional<std::uint32_t> id_of(std::string_view text) const {
    const auto added = added_tokens.id_of(text);
    return added ? added : model.id_of(text);
  }
};

}  // namespace terrace::engine
