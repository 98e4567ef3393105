#include "serve/completion.hpp"

#include <cmath>
#include <ctime>
#include <random>

#include "serve/answer_text.hpp"

namespace terrace::serve {
namespace {

using Json = nlohmann::ordered_json;  // answers keep the order they are written in

std::string random_prefix() {
  std::random_device entropy;
  char text[24];
  std::snprintf(text, sizeof(text), "cmpl-%08x", static_cast<unsigned>(entropy()));
  return text;
}

double milliseconds(std::chrono::duration<double, std::milli> duration) {
  return std::round(duration.count() * 1000) / 1000;
}

// What the engine refuses, as HTTP: its words, and whose turn it is to do something.
ApiError as_api_error(const engine::GenerateError& error) {
  switch (error.code()) {
    case Code::invalid_argument:
      return ApiError(400, error.what(), "prompt", "invalid_prompt");
    case Code::no_space:
    case Code::closed:
      return ApiError(503, error.what());
    default:
      return ApiError(500, error.what());
  }
}

}  // namespace

struct CompletionService::Answer {
  engine::Generation generation;
  std::string text;
  std::chrono::nanoseconds queued{0};
  std::chrono::nanoseconds time_to_first_token{0};  // from arrival
  std::chrono::nanoseconds total{0};

  const char* finish_reason() const {
    return generation.finish == engine::FinishReason::stop ? "stop" : "length";
  }
};

CompletionService::CompletionService(engine::Session& session, Turnstile& turnstile,
                                     RequestMetrics& metrics, std::string model_name)
    : session_(session),
      turnstile_(turnstile),
      metrics_(metrics),
      model_name_(std::move(model_name)),
      id_prefix_(random_prefix()) {}

Json CompletionService::answer(std::string_view body) {
  const auto arrival = Clock::now();
  try {
    const CompletionRequest request = parse_completion_request(body);
    const std::vector<TokenId> prompt = tokens_of(request);
    const Answer answer = generate(request, prompt, arrival);
    metrics_.answered({answer.finish_reason(), answer.generation.prompt_tokens,
                       static_cast<std::uint32_t>(answer.generation.tokens.size()),
                       answer.generation.cached_tokens, answer.time_to_first_token, answer.total});
    return to_json(request, answer);
  } catch (const ApiError& error) {
    metrics_.refused(error.status());
    throw;
  } catch (const engine::GenerateError& error) {
    const ApiError answer = as_api_error(error);
    metrics_.refused(answer.status());
    throw answer;
  } catch (const std::exception&) {
    metrics_.refused(500);
    throw;
  }
}

// The prompt as token ids, checked before anyone waits for it.
std::vector<TokenId> CompletionService::tokens_of(const CompletionRequest& request) const {
  if (request.model && *request.model != model_name_) {
    throw ApiError(
        404,
        "there is no model '" + *request.model + "' here: this server has '" + model_name_ + "'",
        "model", "model_not_found");
  }
  std::vector<TokenId> tokens;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    tokens = *ids;
  } else {
    try {
      tokens = session_.tokenizer().encode(std::get<std::string>(request.prompt));
    } catch (const std::exception& error) {
      throw ApiError(400, std::string("the prompt cannot be tokenized: ") + error.what(), "prompt");
    }
  }
  session_.check(tokens);
  return tokens;
}

CompletionService::Answer CompletionService::generate(const CompletionRequest& request,
                                                      std::span<const TokenId> prompt,
                                                      Clock::time_point arrival) {
  const Turnstile::Turn turn = turnstile_.enter();
  if (!turn) {
    throw ApiError(503, turnstile_.closed() ? "the server is stopping: try again when it is back"
                                            : "too many requests are waiting: try again later");
  }
  Answer answer;
  answer.queued = Clock::now() - arrival;
  AnswerText text(session_.tokenizer(), prompt, request.stop);
  engine::GenerateRequest generate;
  generate.prompt = prompt;
  generate.max_tokens = request.max_tokens;
  generate.tenant_salt = request.cache_salt;
  generate.on_token = [&text](TokenId token) { return text.push(token); };
  answer.generation = session_.generate(generate);
  text.finish();
  answer.text = text.text();
  answer.time_to_first_token = answer.queued + answer.generation.time_to_first_token;
  answer.total = Clock::now() - arrival;
  return answer;
}

Json CompletionService::to_json(const CompletionRequest& request, const Answer& answer) {
  const engine::Generation& generation = answer.generation;
  Json by_tier = Json::object();
  std::uint32_t cached_tokens = 0;
  for (PlaceId place = 0; place < kPlaceCount; ++place) {
    by_tier[to_string(place)] = generation.cached_tokens[place];
    cached_tokens += generation.cached_tokens[place];
  }
  Json choice = {{"index", 0},
                 {"text", answer.text},
                 {"logprobs", nullptr},
                 {"finish_reason", answer.finish_reason()}};
  if (request.return_token_ids) choice["token_ids"] = generation.tokens;
  return {{"id", id_prefix_ + "-" + std::to_string(++answers_)},
          {"object", "text_completion"},
          {"created", std::time(nullptr)},
          {"model", model_name_},
          {"choices", Json::array({std::move(choice)})},
          {"usage",
           {{"prompt_tokens", generation.prompt_tokens},
            {"completion_tokens", generation.tokens.size()},
            {"total_tokens", generation.prompt_tokens + generation.tokens.size()},
            {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}}},
          {"terrace",
           {{"cached_tokens_by_tier", std::move(by_tier)},
            {"ttft_ms", milliseconds(answer.time_to_first_token)},
            {"queue_ms", milliseconds(answer.queued)},
            {"total_ms", milliseconds(answer.total)}}}};
}

}  // namespace terrace::serve
