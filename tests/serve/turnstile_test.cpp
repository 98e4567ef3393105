// One at a time, in order, bounded, and closed in order.
#include "serve/turnstile.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

namespace terrace::serve {
namespace {

using namespace std::chrono_literals;

void wait_until(const std::function<bool()>& condition) {
  const auto give_up_at = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up_at);
    std::this_thread::sleep_for(1ms);
  }
}

TEST(Turnstile, NeverTwoAtATime) {
  Turnstile turnstile(100);
  std::atomic<int> inside{0};
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) {
        const auto turn = turnstile.enter();
        EXPECT_TRUE(turn);
        EXPECT_EQ(++inside, 1);
        --inside;
        ++served;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(served, 400);
  EXPECT_EQ(turnstile.running(), 0u);
}

TEST(Turnstile, InOrderOfArrival) {
  Turnstile turnstile(100);
  std::vector<int> order;
  std::vector<std::thread> threads;
  {
    const auto first = turnstile.enter();
    for (int i = 0; i < 5; ++i) {
      threads.emplace_back([&, i] {
        const auto turn = turnstile.enter();
        order.push_back(i);
      });
      wait_until([&] { return turnstile.waiting() == static_cast<std::size_t>(i) + 1; });
    }
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Turnstile, TooManyAreTurnedAwayAtOnce) {
  Turnstile turnstile(1);
  std::optional<Turnstile::Turn> first(turnstile.enter());
  std::thread second([&] { EXPECT_TRUE(turnstile.enter()); });
  wait_until([&] { return turnstile.waiting() == 1; });
  EXPECT_FALSE(turnstile.enter());
  first.reset();
  second.join();
  EXPECT_TRUE(turnstile.enter());
}

TEST(Turnstile, CloseLetsTheRunningOneEndAndTurnsTheOthersAway) {
  Turnstile turnstile(10);
  std::optional<Turnstile::Turn> first(turnstile.enter());
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&] { EXPECT_FALSE(turnstile.enter()); });
  wait_until([&] { return turnstile.waiting() == 3; });
  turnstile.close();
  EXPECT_EQ(turnstile.running(), 1u);
  EXPECT_FALSE(turnstile.enter());
  first.reset();
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(turnstile.closed());
}

}  // namespace
}  // namespace terrace::serve
