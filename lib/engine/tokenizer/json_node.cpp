// See json_node.hpp.
#include "engine/tokenizer/json_node.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/tokenizer/load_error.hpp"

namespace terrace::engine {

void JsonNode::fail(const std::string& what) const {
  throw LoadError(file_ + ": " + (path_.empty() ? "" : path_ + ": ") + what);
}

void JsonNode::require_object() const {
  if (!value_->is_object()) {
    fail(std::string("must be an object, is of type ") + value_->type_name());
  }
}

bool JsonNode::has(const char* name) const {
  require_object();
  const auto member = value_->find(name);
  return member != value_->end() && !member->is_null();
}

JsonNode JsonNode::at(const char* name) const {
  require_object();
  const auto member = value_->find(name);
  if (member == value_->end()) fail(std::string("'") + name + "' is missing");
  return JsonNode(*member, file_, path_.empty() ? name : path_ + "." + name);
}

std::vector<JsonNode> JsonNode::items() const {
  if (!value_->is_array()) {
    fail(std::string("must be an array, is of type ") + value_->type_name());
  }
  std::vector<JsonNode> nodes;
  nodes.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    nodes.emplace_back((*value_)[i], file_, path_ + "[" + std::to_string(i) + "]");
  }
  return nodes;
}

const std::string& JsonNode::as_string() const {
  if (!value_->is_string()) {
    fail(std::string("must be a string, is of type ") + value_->type_name());
  }
  return value_->get_ref<const std::string&>();
}

std::uint64_t JsonNode::as_unsigned() const {
  if (!value_->is_number_unsigned()) {
    fail("must be a whole number of at least 0, is " + value_->dump());
  }
  return value_->get<std::uint64_t>();
}

bool JsonNode::as_bool() const {
  if (!value_->is_boolean()) {
    fail(std::string("must be true or false, is of type ") + value_->type_name());
  }
  return value_->get<bool>();
}

void JsonNode::only(std::initializer_list<std::string_view> known) const {
  require_object();
  for (const auto& [name, member] : value_->items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      fail("'" + name +
           "' is not a setting that this tokenizer knows, and it could change token ids");
    }
  }
}

}  // namespace terrace::engine
