// The engine on the cache: what is found where, what happens in small tiers, what is refused.
#include "engine/session.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tokenizer/load_error.hpp"
#include "serve/fixture.hpp"

namespace terrace::engine {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

std::vector<TokenId> tokens(std::size_t count, TokenId first = 0) {
  std::vector<TokenId> result;
  for (std::size_t i = 0; i < count; ++i)
    result.push_back(static_cast<TokenId>((first + i * 7) % 256));
  return result;
}

GenerateRequest request(const std::vector<TokenId>& prompt, std::uint32_t max_tokens = 8) {
  GenerateRequest result;
  result.prompt = prompt;
  result.max_tokens = max_tokens;
  return result;
}

std::uint32_t cached(const Generation& generation) {
  return generation.cached_tokens[0] + generation.cached_tokens[1] + generation.cached_tokens[2];
}

class SessionDriven : public testing::TestWithParam<bool> {
 protected:
  SessionOptions options() const {
    auto result = test::small_session("builtin:tiny");
    result.cache.driver_thread = GetParam();
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(DriverThread, SessionDriven, testing::Bool());

TEST_P(SessionDriven, PromptAndAnswerAreFoundByTheNextTurn) {
  const auto session = Session::open(options());
  std::vector<TokenId> turn = tokens(100);
  const Generation first = session->generate(request(turn, 40));
  EXPECT_EQ(cached(first), 0u);
  EXPECT_EQ(first.prompt_tokens, 100u);
  EXPECT_EQ(first.tokens.size(), 40u);
  turn.insert(turn.end(), first.tokens.begin(), first.tokens.end());
  turn.push_back(7);
  // 139 tokens have KV: the last one of an answer is never computed.
  EXPECT_EQ(cached(session->generate(request(turn))), 128u);
}

TEST_P(SessionDriven, LongPromptsAreComputedInChunksAndGiveTheSameAnswer) {
  const auto prompt = tokens(300);
  auto chunked = options();
  chunked.prefill_chunk_tokens = 48;  // not a multiple of anything
  chunked.block_tokens = 7;
  const auto expected = Session::open(options())->generate(request(prompt)).tokens;
  EXPECT_EQ(Session::open(chunked)->generate(request(prompt)).tokens, expected);
}

TEST_P(SessionDriven, AHalfKnownPromptIsHalfComputed) {
  const auto session = Session::open(options());
  const auto known = tokens(128);
  session->generate(request(known, 1));
  auto prompt = known;
  const auto more = tokens(100, 3);
  prompt.insert(prompt.end(), more.begin(), more.end());
  const Generation warm = session->generate(request(prompt));
  EXPECT_EQ(warm.cached_tokens[kHbm0], 128u);
  EXPECT_EQ(warm.tokens, Session::open(options())->generate(request(prompt)).tokens);
}

TEST_P(SessionDriven, AnHbmOfOneRequestServesTwoInTurns) {
  auto small = options();
  small.cache.hbm_bytes = 20 * 6 * KiB;  // 20 blocks of 6 KiB: 320 tokens
  const auto session = Session::open(small);
  const auto a = tokens(200, 1);
  const auto b = tokens(200, 2);
  const auto answer_a = session->generate(request(a)).tokens;
  const auto answer_b = session->generate(request(b)).tokens;
  for (int round = 0; round < 3; ++round) {
    const Generation again_a = session->generate(request(a));
    const Generation again_b = session->generate(request(b));
    EXPECT_EQ(again_a.tokens, answer_a);
    EXPECT_EQ(again_b.tokens, answer_b);
    EXPECT_EQ(cached(again_a), 192u) << round;
    EXPECT_GT(again_a.cached_tokens[kDram0], 0u) << round;
  }
  EXPECT_LE(session->cache().stats().places[kHbm0].capacity_bytes, small.cache.hbm_bytes);
}

TEST_P(SessionDriven, TheCallerMayEndTheAnswer) {
  const auto session = Session::open(options());
  const auto prompt = tokens(40);
  auto asked = request(prompt, 30);
  std::size_t told = 0;
  asked.on_token = [&told](TokenId) { return ++told < 5; };
  const Generation answer = session->generate(asked);
  EXPECT_EQ(answer.tokens.size(), 5u);
  EXPECT_EQ(answer.finish, FinishReason::stop);
}

TEST_P(SessionDriven, AThrowingCallerLeavesNothingPinned) {
  const auto session = Session::open(options());
  const auto prompt = tokens(200);
  auto asked = request(prompt, 30);
  asked.on_token = [](TokenId) -> bool { throw std::runtime_error("gone"); };
  EXPECT_THROW(session->generate(asked), std::runtime_error);
  ASSERT_TRUE(session->cache().flush(10s));
  EXPECT_EQ(session->cache().stats().places[kHbm0].pinned_blocks, 0u);
  // The prefill was done, and is kept.
  EXPECT_EQ(cached(session->generate(request(prompt))), 192u);
}

TEST_P(SessionDriven, WithoutLowerTiersHbmAlone) {
  auto alone = options();
  alone.cache.dram_bytes = 0;
  alone.cache.hbm_bytes = 20 * 6 * KiB;
  const auto session = Session::open(alone);
  const auto a = tokens(200, 1);
  const auto answer = session->generate(request(a)).tokens;
  session->generate(request(tokens(200, 2)));
  EXPECT_EQ(session->generate(request(a)).tokens, answer);
}

TEST(Session, RefusesWhatCannotBeAnswered) {
  auto options = test::small_session("builtin:tiny");
  options.cache.hbm_bytes = 10 * 6 * KiB;
  const auto session = Session::open(options);
  const auto refusal = [&](const std::vector<TokenId>& prompt) -> std::string {
    try {
      session->generate(request(prompt));
    } catch (const GenerateError& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({}), HasSubstr("no tokens"));
  EXPECT_THAT(refusal({1, 2, 272}), HasSubstr("272 at index 2"));
  EXPECT_THAT(refusal(tokens(16384)), AllOf(HasSubstr("16384"), HasSubstr("context")));
  EXPECT_THAT(refusal(tokens(1000)),
              AllOf(HasSubstr("HBM is too small"), HasSubstr("378 KiB"), HasSubstr("60 KiB")));
}

TEST(Session, AnHbmHeldByOthersIsSaidWithItsSizes) {
  auto options = test::small_session("builtin:tiny");
  options.cache.hbm_bytes = 20 * 6 * KiB;
  options.reserve_deadline = 50ms;
  const auto session = Session::open(options);
  const auto a = tokens(200, 1);
  const auto b = tokens(200, 2);
  auto asked = request(a);
  std::string refusal;
  // While the first request holds its blocks, a second one has no room.
  asked.on_token = [&](TokenId) {
    try {
      if (refusal.empty()) session->generate(request(b));
    } catch (const GenerateError& error) {
      EXPECT_EQ(error.code(), Code::no_space);
      refusal = error.what();
    }
    return false;
  };
  session->generate(asked);
  EXPECT_THAT(refusal,
              AllOf(HasSubstr("78 KiB"), HasSubstr("120 KiB"), HasSubstr("held by others")));
  EXPECT_EQ(session->generate(request(b)).prompt_tokens, 200u);
}

TEST(Session, WhatCannotBeOpenedIsSaid) {
  auto options = test::small_session("builtin:tiny");
  options.cache.nvme_paths = {"/proc/terrace-cannot-be-here"};
  options.cache.nvme_bytes = 64 * MiB;
  try {
    Session::open(options);
    FAIL() << "opened a cache in /proc";
  } catch (const LoadError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot open the cache"));
  }
  EXPECT_THROW(Session::open(test::small_session("builtin:huge")), LoadError);
  EXPECT_THROW(Session::open(test::small_session("/nowhere/at/all")), LoadError);
}

}  // namespace
}  // namespace terrace::engine
