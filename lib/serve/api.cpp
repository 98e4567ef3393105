#include "serve/api.hpp"

#include <algorithm>
#include <limits>

namespace terrace::serve {
namespace {

using Json = nlohmann::json;

constexpr int kDepthMax = 16;  // of a body: nothing in this API is deeper than 3
constexpr std::size_t kStopStringsMax = 16;

[[noreturn]] void refuse(const std::string& param, const std::string& what) {
  throw ApiError(400, "'" + param + "' " + what, param);
}

std::string got(const Json& value) {
  return std::string(", not ") + value.type_name();
}

// The field, or null where it is absent or null: the two mean the same in this API.
const Json* find(const Json& body, const char* name) {
  const auto at = body.find(name);
  return at == body.end() || at->is_null() ? nullptr : &*at;
}

std::uint32_t token_id(const Json& value, std::size_t index) {
  const std::string where = "has, at index " + std::to_string(index) + ", ";
  if (!value.is_number_integer())
    refuse("prompt", where + value.dump() + ": token ids are integers");
  const bool fits = value.is_number_unsigned() &&
                    value.get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max();
  if (!fits)
    refuse("prompt",
           where + value.dump() + ": token ids are 0 or more, and below the vocabulary size");
  return value.get<std::uint32_t>();
}

std::vector<std::uint32_t> token_ids(const Json& array) {
  std::vector<std::uint32_t> ids;
  ids.reserve(array.size());
  for (const Json& value : array) ids.push_back(token_id(value, ids.size()));
  return ids;
}

void read_prompt(const Json& prompt, CompletionRequest& request) {
  if (!prompt.is_string() && !prompt.is_array()) {
    refuse("prompt", "must be a string or an array of token ids" + got(prompt));
  }
  if (prompt.empty() || (prompt.is_string() && prompt.get_ref<const std::string&>().empty())) {
    refuse("prompt", "is empty: send some text, or at least one token id");
  }
  if (prompt.is_string()) {
    request.prompt = prompt.get<std::string>();
    return;
  }
  const bool holds_prompts = prompt[0].is_string() || prompt[0].is_array();
  if (holds_prompts && prompt.size() > 1) {
    refuse("prompt", "holds " + std::to_string(prompt.size()) + " prompts: send one a request");
  }
  if (holds_prompts) {
    read_prompt(prompt[0], request);
  } else {
    request.prompt = token_ids(prompt);
  }
}

void read_max_tokens(const Json& value, CompletionRequest& request) {
  if (!value.is_number_integer()) {
    refuse("max_tokens", "must be a whole number of at least 1, not " + value.dump());
  }
  const bool positive = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1;
  if (!positive) refuse("max_tokens", "must be at least 1, not " + value.dump());
  constexpr std::uint64_t kMax = std::numeric_limits<std::int32_t>::max();
  request.max_tokens = static_cast<std::uint32_t>(std::min(value.get<std::uint64_t>(), kMax));
}

void read_stop(const Json& value, CompletionRequest& request) {
  const Json list = value.is_array() ? value : Json::array({value});
  if (list.size() > kStopStringsMax) {
    refuse("stop", "holds " + std::to_string(list.size()) + " strings: at most " +
                       std::to_string(kStopStringsMax) + " are looked for");
  }
  for (const Json& text : list) {
    if (!text.is_string()) refuse("stop", "must be a string or an array of strings" + got(text));
    if (text.get_ref<const std::string&>().empty())
      refuse("stop", "holds an empty string: leave it out");
    request.stop.push_back(text.get<std::string>());
  }
}

bool read_bool(const Json& body, const char* name) {
  const Json* value = find(body, name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) refuse(name, "must be true or false" + got(*value));
  return value->get<bool>();
}

std::optional<std::string> read_string(const Json& body, const char* name) {
  const Json* value = find(body, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name, "must be a string" + got(*value));
  return value->get<std::string>();
}

// Parameters that would change the answer and that this server does not have: refused unless they
// say "as without".
struct Unsupported {
  const char* name;
  Json neutral;  // null: must be absent
  const char* what;
};

void refuse_unsupported(const Json& body) {
  const Unsupported table[] = {
      {"stream", false, "is not supported yet: send false, and read the whole answer at once"},
      {"temperature", 0,
       "must be 0 (or absent): answers are greedy, sampling is not supported yet"},
      {"n", 1, "must be 1: one choice a request"},
      {"best_of", 1, "must be 1: one choice a request"},
      {"echo", false, "is not supported: prepend the prompt yourself"},
      {"logprobs", nullptr, "is not supported: leave it out"},
      {"suffix", nullptr, "is not supported: leave it out"},
      {"logit_bias", Json::object(), "is not supported: leave it out"},
      {"presence_penalty", 0, "must be 0 (or absent)"},
      {"frequency_penalty", 0, "must be 0 (or absent)"},
  };
  for (const Unsupported& parameter : table) {
    const Json* value = find(body, parameter.name);
    if (value == nullptr || *value == parameter.neutral) continue;
    refuse(parameter.name, parameter.what);
  }
}

PlaceId place_named(const Json& name) {
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    if (name == to_string(place)) return place;
  }
  refuse("tiers", "holds " + name.dump() + ": tiers are \"hbm\", \"dram\" and \"nvme\"");
}

}  // namespace

nlohmann::ordered_json ApiError::to_json() const {
  const char* type = status_ == 404   ? "not_found_error"
                     : status_ >= 500 ? "server_error"
                                      : "invalid_request_error";
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  return {{"error",
           {{"message", what()},
            {"type", type},
            {"param", or_null(param_)},
            {"code", or_null(code_)}}}};
}

nlohmann::json parse_body(std::string_view body) {
  // A body of a million brackets would cost far more memory than its bytes.
  const auto limit_depth = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kDepthMax)
      throw ApiError(400, "the body is nested too deep: this API has at most 3 levels");
    return true;
  };
  Json parsed;
  try {
    parsed = Json::parse(body, limit_depth);
  } catch (const Json::parse_error& error) {
    throw ApiError(400, "the body is not valid JSON, at byte " + std::to_string(error.byte) + ": " +
                            error.what());
  }
  if (!parsed.is_object()) throw ApiError(400, "the body must be a JSON object" + got(parsed));
  return parsed;
}

CompletionRequest parse_completion_request(std::string_view text) {
  const Json body = parse_body(text);
  refuse_unsupported(body);
  CompletionRequest request;
  request.model = read_string(body, "model");
  const Json* prompt = find(body, "prompt");
  if (prompt == nullptr) refuse("prompt", "is missing: send a string or an array of token ids");
  read_prompt(*prompt, request);
  if (const Json* value = find(body, "max_tokens")) read_max_tokens(*value, request);
  if (const Json* value = find(body, "stop")) read_stop(*value, request);
  request.return_token_ids = read_bool(body, "return_token_ids");
  request.cache_salt = read_string(body, "cache_salt");
  if (request.cache_salt && request.cache_salt->empty()) {
    refuse("cache_salt", "is empty: leave it out to share KV with every request that has none");
  }
  return request;
}

std::vector<PlaceId> parse_drop_request(std::string_view text) {
  const Json body = parse_body(text);
  const Json* tiers = find(body, "tiers");
  if (tiers == nullptr || !tiers->is_array() || tiers->empty()) {
    refuse("tiers", "must be an array of tiers to empty, as in {\"tiers\": [\"hbm\", \"dram\"]}");
  }
  std::vector<PlaceId> places;
  for (const Json& name : *tiers) places.push_back(place_named(name));
  return places;
}

}  // namespace terrace::serve
