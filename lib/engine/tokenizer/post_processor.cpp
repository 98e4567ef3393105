// See post_processor.hpp.
#include "engine/tokenizer/post_processor.hpp"

#include "engine/tokenizer/bpe.hpp"

namespace terrace::engine {
namespace {

constexpr int sequence_depth_max = 16;

std::vector<std::uint32_t> special_ids(const JsonNode& processor, const std::string& name) {
  const JsonNode specials = processor.at("special_tokens");
  if (!specials.has(name.c_str())) {
    specials.fail("special token '" + name + "' of the template is missing");
  }
  std::vector<std::uint32_t> ids;
  for (const JsonNode& id : specials.at(name.c_str()).items("ids")) {
    if (id.as_unsigned() >= token_id_limit) {
      id.fail("must be below " + std::to_string(token_id_limit));
    }
    ids.push_back(static_cast<std::uint32_t>(id.as_unsigned()));
  }
  return ids;
}

// The template for one text: special tokens around the sequence "A", which stands there once.
PostProcessor read_template(const JsonNode& node) {
  node.only({"type", "single", "pair", "special_tokens"});
  PostProcessor processor;
  int sequences = 0;
  for (const JsonNode& piece : node.items("single")) {
    piece.only({"SpecialToken", "Sequence"});
    if (piece.has("Sequence")) {
      if (piece.at("Sequence").string("id") != "A") piece.fail("only sequence 'A' can stand here");
      ++sequences;
      continue;
    }
    auto& side = sequences == 0 ? processor.prefix : processor.suffix;
    for (const std::uint32_t id : special_ids(node, piece.at("SpecialToken").string("id"))) {
      side.push_back(id);
    }
  }
  if (sequences != 1) node.at("single").fail("sequence 'A' must stand in the template once");
  return processor;
}

void wrap(PostProcessor& inner, const PostProcessor& outer) {
  inner.prefix.insert(inner.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
  inner.suffix.insert(inner.suffix.end(), outer.suffix.begin(), outer.suffix.end());
}

void read_into(PostProcessor& processor, const JsonNode& node, int depth) {
  const std::string& type = node.string("type");
  if (depth > sequence_depth_max) node.fail("sequences are nested too deeply");
  if (type == "Sequence") {
    node.only({"type", "processors"});
    for (const JsonNode& item : node.items("processors")) read_into(processor, item, depth + 1);
  } else if (type == "TemplateProcessing") {
    wrap(processor, read_template(node));
  } else if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else {
    node.fail("post-processor '" + type +
              "' is not supported; supported are Sequence, TemplateProcessing and ByteLevel");
  }
}

}  // namespace

PostProcessor PostProcessor::read(const JsonNode& node) {
  PostProcessor processor;
  read_into(processor, node, 0);
  return processor;
}

}  // namespace terrace::engine
