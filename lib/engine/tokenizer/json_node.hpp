// A place in a JSON file that knows its own name, so that every complaint says file, place and
// reason. Reads only; never outlives the document it points into. Called by the readers of this
// folder while a tokenizer is loaded; one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::engine {

class JsonNode {
 public:
  // `file` names the file in messages; `value` must outlive the node.
  JsonNode(const nlohmann::json& value, std::string file, std::string path = "")
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }

  // Throws LoadError "file: path: what".
  [[noreturn]] void fail(const std::string& what) const;

  // Whether the member is there and not null.
  bool has(const char* name) const;
  // The member, which must be there.
  JsonNode at(const char* name) const;
  std::vector<JsonNode> items() const;
  std::vector<JsonNode> items(const char* name) const { return at(name).items(); }

  const std::string& as_string() const;
  std::uint64_t as_unsigned() const;
  bool as_bool() const;
  const std::string& string(const char* name) const { return at(name).as_string(); }
  std::uint64_t unsigned_number(const char* name) const { return at(name).as_unsigned(); }
  bool boolean(const char* name) const { return at(name).as_bool(); }
  bool boolean_or(const char* name, bool otherwise) const {
    return has(name) ? boolean(name) : otherwise;
  }
  std::string string_or(const char* name, const std::string& otherwise) const {
    return has(name) ? string(name) : otherwise;
  }

  // Refuses a member that is not `known`: what we do not understand may change the token ids.
  void only(std::initializer_list<std::string_view> known) const;

  void require_object() const;

 private:
  const nlohmann::json* value_;
  std::string file_;
  std::string path_;
};

}  // namespace terrace::engine
