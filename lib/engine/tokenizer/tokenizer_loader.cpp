// Tokenizer::load() and Tokenizer::bytes(): from files, or from nothing, to Tokenizer::Data.
// Everything that can be wrong with a tokenizer's files is said here or in the readers that this
// calls, never later.
#include <openssl/evp.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/tokenizer/byte_alphabet.hpp"
#include "engine/tokenizer/json_node.hpp"
#include "engine/tokenizer/tokenizer.hpp"
#include "engine/tokenizer/tokenizer_data.hpp"

namespace terrace::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t file_bytes_max =
    256U << 20;  // the largest tokenizer.json in use has about 30 MiB

std::string read_file(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error) throw LoadError(path.string() + ": cannot be read: " + error.message());
  if (bytes > file_bytes_max) throw LoadError(path.string() + ": is larger than 256 MiB");
  std::ifstream file(path, std::ios::binary);
  std::string content(static_cast<std::size_t>(bytes), '\0');
  file.read(content.data(), static_cast<std::streamsize>(bytes));
  if (!file) throw LoadError(path.string() + ": cannot be read to its end");
  return content;
}

json parse(const std::string& text, const std::string& file) {
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw LoadError(file + ": is not valid JSON, perhaps cut short in a copy (" +
                    std::to_string(text.size()) + " bytes): " + error.what());
  }
}

bool is_there(const fs::path& path) {
  std::error_code error;
  const bool found = fs::exists(path, error);
  if (error) throw LoadError(path.string() + ": cannot be looked up: " + error.message());
  return found;
}

// An object; null where the file is not there.
json parse_if_present(const fs::path& path) {
  if (!is_there(path)) return json();
  json value = parse(read_file(path), path.string());
  JsonNode(value, path.string()).require_object();
  return value;
}

// A file of the model directory that need not be there.
class OptionalFile {
 public:
  explicit OptionalFile(const fs::path& path)
      : value_(parse_if_present(path)), name_(path.string()) {}
  bool exists() const { return !value_.is_null(); }
  bool has(const char* name) const { return exists() && node().has(name); }
  JsonNode node() const { return JsonNode(value_, name_); }
  JsonNode at(const char* name) const { return node().at(name); }

 private:
  json value_;
  std::string name_;
};

// Truncation would cut prompts without a word. Padding to the longest of a batch does nothing to a
// single text.
void refuse_cutting_and_padding(const JsonNode& root) {
  if (root.has("truncation")) {
    root.at("truncation").fail("is set, and prompts are never cut here; set it to null");
  }
  if (!root.has("padding")) return;
  const JsonNode padding = root.at("padding");
  const bool to_longest =
      padding.at("strategy").value() == "BatchLongest" && !padding.has("pad_to_multiple_of");
  if (!to_longest) padding.fail("pads texts to a length, which is not supported; set it to null");
}

void refuse_other_versions(const JsonNode& root) {
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  if (root.string_or("version", "1.0") != "1.0") {
    root.at("version").fail("is '" + root.string("version") + "'; only '1.0' is supported");
  }
}

// transformers lets tokenizer_config.json add tokens, and change the flags of those in
// tokenizer.json.
void read_added_tokens(Tokenizer::Data& data, const JsonNode& root, const OptionalFile& config) {
  if (root.has("added_tokens")) {
    for (const JsonNode& token : root.items("added_tokens")) {
      data.added_tokens.add(token, token.unsigned_number("id"), data.model);
    }
  }
  if (config.has("added_tokens_decoder")) {
    const JsonNode tokens = config.at("added_tokens_decoder");
    tokens.require_object();
    std::vector<std::pair<std::uint64_t, std::string>> by_id;
    for (const auto& [key, value] : tokens.value().items()) {
      const bool number = !key.empty() && key.size() < 10 &&
                          key.find_first_not_of("0123456789") == std::string::npos;
      if (!number) tokens.fail("'" + key + "' is not a token id");
      by_id.emplace_back(std::stoul(key), key);
    }
    std::sort(by_id.begin(), by_id.end());
    for (const auto& [id, key] : by_id) {
      data.added_tokens.add(tokens.at(key.c_str()), id, data.model);
    }
  }
  data.added_tokens.build(data.normalizer, root);
}

void read_components(Tokenizer::Data& data, const JsonNode& root) {
  if (root.has("normalizer")) data.normalizer = Normalizer::read(root.at("normalizer"));
  if (root.has("pre_tokenizer")) data.pre_tokenizer = PreTokenizer::read(root.at("pre_tokenizer"));
  if (root.has("post_processor")) {
    data.post_processor = PostProcessor::read(root.at("post_processor"));
  }
  if (root.has("decoder")) data.decoder = Decoder::read(root.at("decoder"));
}

// The text of a token in tokenizer_config.json: "<s>" or {"content": "<s>", ...}.
std::optional<std::string> token_text(const OptionalFile& config, const char* name) {
  if (!config.has(name)) return std::nullopt;
  const JsonNode token = config.at(name);
  return token.value().is_object() ? token.string("content") : token.as_string();
}

std::optional<std::uint32_t> token_id(const Tokenizer::Data& data, const OptionalFile& config,
                                      const char* name) {
  const auto text = token_text(config, name);
  if (!text || text->empty()) return std::nullopt;
  const auto id = data.id_of(*text);
  if (!id) config.at(name).fail("token '" + *text + "' is not in tokenizer.json");
  return id;
}

void add_eos(Tokenizer::Data& data, const JsonNode& id) {
  const std::uint64_t value = id.as_unsigned();
  if (value >= token_id_limit) id.fail("must be below " + std::to_string(token_id_limit));
  const auto eos = static_cast<std::uint32_t>(value);
  if (std::find(data.eos_ids.begin(), data.eos_ids.end(), eos) == data.eos_ids.end()) {
    data.eos_ids.push_back(eos);
  }
}

void add_eos_of(Tokenizer::Data& data, const OptionalFile& file) {
  if (!file.has("eos_token_id")) return;
  const JsonNode ids = file.at("eos_token_id");
  if (!ids.value().is_array()) return add_eos(data, ids);
  for (const JsonNode& id : ids.items()) add_eos(data, id);
}

void read_bos(Tokenizer::Data& data, const OptionalFile& file) {
  if (data.bos_id || !file.has("bos_token_id")) return;
  const JsonNode id = file.at("bos_token_id");
  if (id.as_unsigned() >= token_id_limit) {
    id.fail("must be below " + std::to_string(token_id_limit));
  }
  data.bos_id = static_cast<std::uint32_t>(id.as_unsigned());
}

// Classes of transformers that build the post-processor anew from add_bos_token and add_eos_token,
// whatever tokenizer.json says. All others leave it alone.
bool rebuilds_post_processor(const OptionalFile& config) {
  if (!config.has("tokenizer_class")) return false;
  static constexpr std::string_view classes[] = {
      "LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast",
      "GemmaTokenizer", "GemmaTokenizerFast", "CohereTokenizer",    "CohereTokenizerFast"};
  return std::find(std::begin(classes), std::end(classes),
                   config.at("tokenizer_class").as_string()) != std::end(classes);
}

void set_special(std::vector<std::uint32_t>& side, const OptionalFile& config, const char* flag,
                 std::optional<std::uint32_t> id) {
  if (!config.has(flag)) return;
  side.clear();
  if (!config.at(flag).as_bool()) return;
  if (!id) config.at(flag).fail("is true, but the file does not name the token to add");
  side.push_back(*id);
}

void read_special_tokens(Tokenizer::Data& data, const OptionalFile& config) {
  data.bos_id = token_id(data, config, "bos_token");
  const auto eos_id = token_id(data, config, "eos_token");
  if (eos_id) data.eos_ids.push_back(*eos_id);
  if (!rebuilds_post_processor(config)) return;
  set_special(data.post_processor.prefix, config, "add_bos_token", data.bos_id);
  set_special(data.post_processor.suffix, config, "add_eos_token", eos_id);
}

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view bytes) {
  Digest digest{};
  unsigned length = 0;
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr);
  if (done != 1 || length != digest.size()) throw std::runtime_error("SHA-256 failed");
  return digest;
}

// Tag, length and content of each part, so that no two different lists of parts give the same
// bytes.
void append_part(std::string& bytes, std::string_view tag, std::string_view content) {
  for (const std::string_view text : {tag, content}) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes += static_cast<char>(std::uint64_t{text.size()} >> shift & 0xFF);
    }
    bytes += text;
  }
}

Digest digest_of(const std::string& tokenizer_json, const OptionalFile& config) {
  json relevant = json::object();
  for (const char* name : {"tokenizer_class", "add_bos_token", "add_eos_token", "bos_token",
                           "eos_token", "added_tokens_decoder"}) {
    if (config.has(name)) relevant[name] = config.at(name).value();
  }
  const Digest content = sha256(tokenizer_json);
  std::string bytes;
  append_part(bytes, "format", "terrace tokenizer 1");
  append_part(bytes, "sha256 of tokenizer.json",
              std::string_view(reinterpret_cast<const char*>(content.data()), content.size()));
  append_part(bytes, "tokenizer_config.json", relevant.dump());
  return sha256(bytes);
}

fs::path find_tokenizer_json(const fs::path& model_dir) {
  const fs::path path = model_dir / "tokenizer.json";
  if (is_there(path)) return path;
  const bool has_other = is_there(model_dir / "tokenizer.model");
  throw LoadError(path.string() + ": there is no such file" +
                  (has_other ? "; tokenizer.model alone cannot be used, convert it with "
                               "transformers' AutoTokenizer and save_pretrained()"
                             : "; give the directory of a Hugging Face model"));
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& model_dir) {
  const fs::path path = find_tokenizer_json(model_dir);
  const std::string text = read_file(path);
  const json document = parse(text, path.string());
  const JsonNode root(document, path.string());
  refuse_other_versions(root);
  refuse_cutting_and_padding(root);
  const OptionalFile config(model_dir / "tokenizer_config.json");

  auto data = std::make_shared<Data>(Data{Bpe::read(root.at("model"))});
  read_components(*data, root);
  read_added_tokens(*data, root, config);
  read_special_tokens(*data, config);
  const OptionalFile generation(model_dir / "generation_config.json");
  const OptionalFile model(model_dir / "config.json");
  const OptionalFile& stops = generation.has("eos_token_id") ? generation : model;
  add_eos_of(*data, stops);
  read_bos(*data, generation);
  read_bos(*data, model);
  data->digest = digest_of(text, config);
  return Tokenizer(std::move(data));
}

// A byte-level model without merges. The two special tokens are in the vocabulary, where no text
// can reach them.
Tokenizer Tokenizer::bytes() {
  Bpe::Vocabulary vocabulary;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    vocabulary.emplace_back(byte_alphabet::symbol_of(static_cast<std::uint8_t>(byte)), byte);
  }
  vocabulary.emplace_back("<bos>", bytes_bos_id);
  vocabulary.emplace_back("<eos>", bytes_eos_id);
  auto data = std::make_shared<Data>(Data{Bpe(std::move(vocabulary), {})});
  data->added_tokens.mark_special(bytes_bos_id);
  data->added_tokens.mark_special(bytes_eos_id);
  data->pre_tokenizer = PreTokenizer({PreTokenizer::ByteLevel{false, false}});
  data->post_processor.prefix = {bytes_bos_id};
  data->decoder = Decoder::byte_level();
  data->bos_id = bytes_bos_id;
  data->eos_ids = {bytes_eos_id};
  data->digest = sha256("terrace tokenizer of bytes 1");
  return Tokenizer(std::move(data));
}

}  // namespace terrace::engine
