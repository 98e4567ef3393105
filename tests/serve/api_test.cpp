// What a body may say, and what is said about one that may not.
#include "serve/api.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace terrace::serve {
namespace {

using testing::HasSubstr;

ApiError error_of(const std::string& body) {
  try {
    parse_completion_request(body);
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << body;
  return ApiError(0, "");
}

TEST(CompletionRequest, TextWithDefaults) {
  const auto request = parse_completion_request(R"({"prompt": "hi"})");
  EXPECT_EQ(std::get<std::string>(request.prompt), "hi");
  EXPECT_EQ(request.max_tokens, 16u);
  EXPECT_FALSE(request.model || request.cache_salt || request.return_token_ids);
  EXPECT_TRUE(request.stop.empty());
}

TEST(CompletionRequest, EveryFormOfAPrompt) {
  using Ids = std::vector<std::uint32_t>;
  EXPECT_EQ(std::get<Ids>(parse_completion_request(R"({"prompt": [1, 2, 4294967295]})").prompt),
            (Ids{1, 2, 4294967295}));
  EXPECT_EQ(std::get<Ids>(parse_completion_request(R"({"prompt": [[7]]})").prompt), Ids{7});
  EXPECT_EQ(std::get<std::string>(parse_completion_request(R"({"prompt": ["hi"]})").prompt), "hi");
}

TEST(CompletionRequest, EveryField) {
  const auto request = parse_completion_request(
      R"({"model": "m", "prompt": "p", "max_tokens": 3, "temperature": 0.0, "stop": ["a", "b"], "stream": false,
          "return_token_ids": true, "cache_salt": "s", "n": 1, "top_p": 0.5, "logprobs": null, "user": "u"})");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 3u);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.return_token_ids);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(parse_completion_request(R"({"prompt": "p", "stop": "x"})").stop,
            std::vector<std::string>{"x"});
}

struct Refusal {
  const char* body;
  const char* param;
  const char* says;
};

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, NamesTheFieldAndWhatIsWrong) {
  const ApiError error = error_of(GetParam().body);
  EXPECT_EQ(error.status(), 400);
  EXPECT_EQ(error.param(), GetParam().param);
  EXPECT_THAT(error.what(), HasSubstr(GetParam().says));
  const auto json = error.to_json().at("error");
  EXPECT_EQ(json.at("type"), "invalid_request_error");
  EXPECT_EQ(json.at("message"), error.what());
}

INSTANTIATE_TEST_SUITE_P(
    Bodies, Refused,
    testing::Values(
        Refusal{"{\"prompt\": ", "", "not valid JSON, at byte 12"},
        Refusal{"", "", "not valid JSON"}, Refusal{"[1]", "", "must be a JSON object, not array"},
        Refusal{"{\"prompt\": \"\xff\"}", "", "not valid JSON"},
        Refusal{R"({})", "prompt", "is missing"},
        Refusal{R"({"prompt": null})", "prompt", "is missing"},
        Refusal{R"({"prompt": ""})", "prompt", "is empty"},
        Refusal{R"({"prompt": []})", "prompt", "is empty"},
        Refusal{R"({"prompt": [""]})", "prompt", "is empty"},
        Refusal{R"({"prompt": 7})", "prompt", "not number"},
        Refusal{R"({"prompt": {}})", "prompt", "not object"},
        Refusal{R"({"prompt": ["a", "b"]})", "prompt", "holds 2 prompts"},
        Refusal{R"({"prompt": [1, -2]})", "prompt", "at index 1, -2"},
        Refusal{R"({"prompt": [1, 2.5]})", "prompt", "at index 1, 2.5: token ids are integers"},
        Refusal{R"({"prompt": [1, "a"]})", "prompt", "at index 1, \"a\""},
        Refusal{R"({"prompt": [4294967296]})", "prompt", "below the vocabulary"},
        Refusal{R"({"prompt": "p", "max_tokens": -1})", "max_tokens", "at least 1, not -1"},
        Refusal{R"({"prompt": "p", "max_tokens": 0})", "max_tokens", "at least 1, not 0"},
        Refusal{R"({"prompt": "p", "max_tokens": 1.5})", "max_tokens", "whole number"},
        Refusal{R"({"prompt": "p", "max_tokens": "9"})", "max_tokens", "whole number"},
        Refusal{R"({"prompt": "p", "max_tokens": true})", "max_tokens", "whole number"},
        Refusal{R"({"prompt": "p", "temperature": 0.7})", "temperature", "must be 0"},
        Refusal{R"({"prompt": "p", "temperature": "0"})", "temperature", "must be 0"},
        Refusal{R"({"prompt": "p", "stream": true})", "stream", "not supported yet"},
        Refusal{R"({"prompt": "p", "n": 2})", "n", "must be 1"},
        Refusal{R"({"prompt": "p", "best_of": 2})", "best_of", "must be 1"},
        Refusal{R"({"prompt": "p", "logprobs": 1})", "logprobs", "not supported"},
        Refusal{R"({"prompt": "p", "echo": true})", "echo", "not supported"},
        Refusal{R"({"prompt": "p", "presence_penalty": 1})", "presence_penalty", "must be 0"},
        Refusal{R"({"prompt": "p", "stop": 5})", "stop", "not number"},
        Refusal{R"({"prompt": "p", "stop": [""]})", "stop", "empty string"},
        Refusal{
            R"({"prompt": "p", "stop": ["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"]})",
            "stop", "holds 17 strings"},
        Refusal{R"({"prompt": "p", "return_token_ids": 1})", "return_token_ids", "true or false"},
        Refusal{R"({"prompt": "p", "model": 1})", "model", "must be a string"},
        Refusal{R"({"prompt": "p", "cache_salt": ""})", "cache_salt", "is empty"},
        Refusal{R"({"prompt": "p", "cache_salt": 1})", "cache_salt", "must be a string"}));

TEST(CompletionRequest, DeepNestingIsRefusedBeforeItCostsMemory) {
  const ApiError error = error_of("{\"x\": " + std::string(4 << 20, '['));
  EXPECT_THAT(error.what(), HasSubstr("nested too deep"));
}

TEST(DropRequest, NamesTiers) {
  EXPECT_EQ(parse_drop_request(R"({"tiers": ["hbm", "nvme"]})"),
            (std::vector<PlaceId>{kHbm0, kNvme0}));
  for (const char* body :
       {R"({})", R"({"tiers": []})", R"({"tiers": "hbm"})", R"({"tiers": ["ram"]})"}) {
    EXPECT_THROW(parse_drop_request(body), ApiError) << body;
  }
}

TEST(ApiError, TypeFollowsStatus) {
  EXPECT_EQ(ApiError(404, "m", "model", "model_not_found").to_json(),
            nlohmann::ordered_json::parse(
                R"({"error": {"message": "m", "type": "not_found_error", "param": "model",
                                                "code": "model_not_found"}})"));
  EXPECT_EQ(ApiError(503, "m").to_json().at("error").at("type"), "server_error");
  EXPECT_TRUE(ApiError(503, "m").to_json().at("error").at("param").is_null());
}

}  // namespace
}  // namespace terrace::serve
