#include "engine/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/sampler.hpp"
#include "engine/tokenizer/load_error.hpp"
#include "terrace/units.hpp"

namespace terrace::engine {
namespace {

using SteadyClock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kPollInterval =
    200us;  // while waiting: short against a block's way, long against a poll

std::string describe(const Error& error) {
  std::string text = fmt::format("{} ({})", error.message, to_string(error.code));
  if (error.os_error != 0) text += fmt::format(": {}", std::strerror(error.os_error));
  return text;
}

[[noreturn]] void give_up(const char* step, const Error& error) {
  throw GenerateError(error.code, fmt::format("{}: {}", step, describe(error)));
}

template <class T>
T value_or_load_error(Result<T> result, const std::string& step) {
  if (!result) throw LoadError(fmt::format("{}: {}", step, describe(result.error())));
  return std::move(*result);
}

Layout layout_of(const ModelConfig& config, std::uint32_t block_tokens) {
  return Layout::full(config.layers, config.kv_heads, config.head_dim, KvDtype::f32, block_tokens);
}

// Everything that decides which KV a token gets. Nothing of it is a name or a path.
ModelIdentity identity_of(const LoadedModel& model, const Tokenizer& tokenizer) {
  Digest tokenizer_digest;
  std::memcpy(tokenizer_digest.data(), tokenizer.digest().data(), tokenizer_digest.size());
  ModelIdentity identity;
  identity.weights = model.weights_digest;
  identity.tokenizer = tokenizer_digest;
  identity.attention = model.attention_digest;
  identity.quantization = "none";
  identity.kv_scaling = "none";
  return identity;
}

Tokenizer tokenizer_of(const LoadedModel& model) {
  Tokenizer tokenizer = model.directory ? Tokenizer::load(*model.directory) : Tokenizer::bytes();
  if (tokenizer.vocab_size() <= model.config().vocab_size) return tokenizer;
  throw LoadError(fmt::format(
      "{}: the tokenizer has {} ids, but the model only {} embeddings (vocab_size in config.json); "
      "the two are not of one model",
      model.name, tokenizer.vocab_size(), model.config().vocab_size));
}

}  // namespace

// Holds a layer's attention back until the fetched KV of that layer has landed.
class Session::FetchGate final : public LayerGate {
 public:
  FetchGate(Session& session, FetchOp& fetch) : session_(session), fetch_(fetch) {}

  void wait(std::uint32_t layer) override {
    CopyEngine& device = session_.cache_.device();
    retry([&] { return fetch_.gate(layer, session_.stream_); });
    StreamPoint point;
    retry([&]() -> Result<void> {
      auto recorded = device.record(session_.stream_);
      if (!recorded) return unexpected(recorded.error());
      point = *recorded;
      return {};
    });
    if (device.synchronize(point) != PointState::passed) {
      throw GenerateError(Code::io_error, "the device failed while cached KV was copied into HBM");
    }
  }

 private:
  // A full queue of the device empties as the cache is polled.
  template <class Step>
  void retry(Step step) {
    Result<void> result = step();
    while (!result && result.error().code == Code::retry_later) {
      session_.cache_.poll(kPollInterval);
      result = step();
    }
    if (!result) give_up("waiting for cached KV", result.error());
  }

  Session& session_;
  FetchOp& fetch_;
};

std::unique_ptr<Session> Session::open(SessionOptions options) {
  LoadedModel model = load_model(options.model, options.load);
  Tokenizer tokenizer = tokenizer_of(model);
  Cache cache = value_or_load_error(
      Cache::open(options.cache, layout_of(model.config(), options.block_tokens)),
      "cannot open the cache");
  Model bound = value_or_load_error(cache.bind(identity_of(model, tokenizer)),
                                    "cannot bind the model to the cache");
  const StreamId stream =
      value_or_load_error(cache.device().create_stream(), "cannot create a stream on the device");
  return std::unique_ptr<Session>(new Session(std::move(options), std::move(model),
                                              std::move(tokenizer), std::move(cache),
                                              std::move(bound), stream));
}

Session::Session(SessionOptions options, LoadedModel model, Tokenizer tokenizer, Cache cache,
                 Model bound, StreamId stream)
    : options_(std::move(options)),
      model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      forward_(model_.weights, {options_.load.threads, options_.prefill_chunk_tokens}),
      cache_(std::move(cache)),
      bound_(std::move(bound)),
      stream_(stream) {
  const std::uint64_t hbm_tokens =
      std::uint64_t{cache_.stats().places[kHbm0].capacity_blocks} * options_.block_tokens;
  context_tokens_ = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(model_.config().max_positions, hbm_tokens));
}

Session::~Session() {
  cache_.device().destroy_stream(stream_);
}

void Session::check(std::span<const TokenId> prompt) const {
  const auto refuse = [](const std::string& why) {
    throw GenerateError(Code::invalid_argument, why);
  };
  if (prompt.empty()) refuse("the prompt has no tokens; at least one is needed");
  const std::uint32_t vocabulary = model_.config().vocab_size;
  const auto bad = std::find_if(prompt.begin(), prompt.end(),
                                [&](TokenId token) { return token >= vocabulary; });
  if (bad != prompt.end()) {
    refuse(fmt::format("token id {} at index {} is out of the vocabulary; ids are 0 to {}", *bad,
                       bad - prompt.begin(), vocabulary - 1));
  }
  const std::uint32_t context = model_.config().max_positions;
  if (prompt.size() >= context) {
    refuse(
        fmt::format("the prompt has {} tokens, but the model's context is {} tokens, and the "
                    "answer needs at least one of them; shorten the prompt",
                    prompt.size(), context));
  }
  if (prompt.size() < context_tokens_) return;
  const PlaceStats hbm = cache_.stats().places[kHbm0];
  const std::uint64_t blocks = prompt.size() / options_.block_tokens + 1;
  refuse(
      fmt::format("HBM is too small for this request: {} prompt tokens and an answer need {} of "
                  "KV, and {} are configured; raise the HBM cap or shorten the prompt",
                  prompt.size(), format_bytes(blocks * hbm.block_stride_bytes),
                  format_bytes(hbm.capacity_bytes)));
}

// The story of a request: fetch what is cached, compute the rest of the prompt, then token by
// token.
Generation Session::generate(const GenerateRequest& request) {
  check(request.prompt);
  const auto start = SteadyClock::now();
  Generation result;
  result.prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());

  FetchOp fetch = fetch_prefix(request);
  for (const BlockResult& block : fetch.results()) {
    if (block.usable) result.cached_tokens[block.found_at] += options_.block_tokens;
  }
  const std::uint32_t cached_tokens = fetch.blocks_usable() * options_.block_tokens;
  PagedSequence sequence(cache_, bound_, fetch.take_lease());

  const TokenId first = prefill(sequence, request.prompt, cached_tokens, fetch);
  result.time_to_first_token = SteadyClock::now() - start;

  decode(sequence, request, first, result);
  return result;
}

// What the cache has of the prompt, on its way into HBM: less than was matched where something
// fails or is late.
FetchOp Session::fetch_prefix(const GenerateRequest& request) {
  auto match = bound_.match(request.prompt, {.adapter = {}, .tenant_salt = request.tenant_salt});
  if (!match) give_up("looking the prompt up", match.error());
  FetchOp fetch;
  OperationOptions how;
  how.deadline = options_.fetch_deadline;
  Result<void> submitted = bound_.fetch(std::move(*match), fetch, how);
  while (!submitted && submitted.error().code == Code::retry_later) {
    cache_.poll(kPollInterval);
    submitted = bound_.fetch(std::move(*match), fetch, how);
  }
  if (!submitted) give_up("fetching cached KV", submitted.error());
  while (!fetch.done()) cache_.poll(kPollInterval);
  return fetch;
}

// Computes the prompt from token `start` on. Chunks are published as they are done, so an abort
// keeps them.
TokenId Session::prefill(PagedSequence& sequence, std::span<const TokenId> prompt,
                         std::uint32_t start, FetchOp& fetch) {
  make_room(sequence, static_cast<std::uint32_t>(prompt.size()));
  FetchGate gate(*this, fetch);
  LayerGate* arriving =
      start > 0 ? &gate : nullptr;  // the first chunk waits for it; then all is there
  std::span<const float> logits;
  for (std::size_t done = start; done < prompt.size();) {
    const auto chunk = prompt.subspan(
        done, std::min<std::size_t>(options_.prefill_chunk_tokens, prompt.size() - done));
    logits = forward_.run(chunk, static_cast<std::uint32_t>(done), sequence.kv(), arriving);
    arriving = nullptr;
    done += chunk.size();
    publish(sequence, prompt.first(done));
  }
  return argmax(logits);
}

// Answers from `next`, the first token, on, until an end token, the caller, max_tokens or the
// context ends it.
void Session::decode(PagedSequence& sequence, const GenerateRequest& request, TokenId next,
                     Generation& result) {
  std::vector<TokenId> tokens(request.prompt.begin(), request.prompt.end());
  while (true) {
    result.tokens.push_back(next);
    const bool wanted = !request.on_token || request.on_token(next);
    if (!wanted || ends_answer(next)) {
      result.finish = FinishReason::stop;
      return;
    }
    tokens.push_back(next);
    if (result.tokens.size() >= request.max_tokens || tokens.size() >= context_tokens_) {
      result.finish = FinishReason::length;
      return;
    }
    const auto count = static_cast<std::uint32_t>(tokens.size());
    make_room(sequence, count);
    next = argmax(forward_.run(std::span(tokens).last(1), count - 1, sequence.kv()));
    publish(sequence, tokens);
  }
}

// Slots are given free by spills: where none is, the cache gets time to finish some.
void Session::make_room(PagedSequence& sequence, std::uint32_t tokens) {
  const auto give_up_at = SteadyClock::now() + options_.reserve_deadline;
  Result<void> reserved = sequence.reserve(tokens);
  while (!reserved && reserved.error().code == Code::no_space && SteadyClock::now() < give_up_at) {
    cache_.poll(kPollInterval);
    reserved = sequence.reserve(tokens);
  }
  if (reserved) return;
  if (reserved.error().code != Code::no_space) give_up("reserving HBM", reserved.error());
  const PlaceStats hbm = cache_.stats().places[kHbm0];
  const std::uint64_t blocks = (tokens + options_.block_tokens - 1) / options_.block_tokens;
  throw GenerateError(
      Code::no_space,
      fmt::format("HBM has no room: this request needs {} of KV, {} are configured, and {} of them "
                  "are held by others; try again, or raise the HBM cap",
                  format_bytes(blocks * hbm.block_stride_bytes), format_bytes(hbm.capacity_bytes),
                  format_bytes(hbm.pinned_blocks * hbm.block_stride_bytes)));
}

void Session::publish(PagedSequence& sequence, std::span<const TokenId> computed) {
  if (auto committed = sequence.commit(computed); !committed) {
    give_up("publishing KV", committed.error());
  }
  cache_.poll();  // spills move on while the next tokens are computed
}

bool Session::ends_answer(TokenId token) const noexcept {
  const auto has = [token](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return has(model_.config().eos_tokens) || has(tokenizer_.eos_ids());
}

}  // namespace terrace::engine
