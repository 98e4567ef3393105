#include "engine/thread_team.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

namespace terrace::engine {
namespace {

TEST(ThreadTeamTest, EveryIndexRunsOnce) {
  for (const unsigned threads : {1U, 2U, 5U}) {
    ThreadTeam team(threads);
    EXPECT_EQ(team.size(), threads);
    for (const std::uint32_t count : {0U, 1U, 2U, 7U, 1000U}) {
      std::vector<int> runs(count, 0);
      team.for_each(count, [&](std::uint32_t index, unsigned thread) {
        ++runs[index];
        EXPECT_LT(thread, threads);
      });
      EXPECT_EQ(runs, std::vector<int>(count, 1)) << count;
    }
  }
}

// What one step wrote, the next step on any thread reads: no locks in between.
TEST(ThreadTeamTest, StepsSeeWhatEarlierStepsWrote) {
  ThreadTeam team(3);
  std::vector<std::uint64_t> values(64, 1);
  std::vector<std::uint64_t> sums(64, 0);
  for (int round = 0; round < 500; ++round) {
    team.for_each(64, [&](std::uint32_t i, unsigned) {
      sums[i] = std::accumulate(values.begin(), values.end(), std::uint64_t{0}) % 1009;
    });
    team.for_each(64, [&](std::uint32_t i, unsigned) { values[i] = sums[63 - i] + i; });
  }
  std::vector<std::uint64_t> expected(64, 1);
  for (int round = 0; round < 500; ++round) {
    const auto sum = std::accumulate(expected.begin(), expected.end(), std::uint64_t{0}) % 1009;
    for (std::uint64_t i = 0; i < 64; ++i) expected[i] = sum + i;
  }
  EXPECT_EQ(values, expected);
}

TEST(ThreadTeamTest, AnExceptionReachesTheCallerAndTheTeamGoesOn) {
  ThreadTeam team(2);
  EXPECT_THROW(team.for_each(100,
                             [](std::uint32_t index, unsigned) {
                               if (index == 50) throw std::runtime_error("fifty");
                             }),
               std::runtime_error);
  std::atomic<int> runs{0};
  team.for_each(100, [&](std::uint32_t, unsigned) { ++runs; });
  EXPECT_EQ(runs, 100);
}

TEST(ThreadTeamTest, OpensAndClosesAHundredTimes) {
  for (int i = 0; i < 100; ++i) {
    ThreadTeam team(3);
    std::atomic<int> runs{0};
    team.for_each(3, [&](std::uint32_t, unsigned) { ++runs; });
    EXPECT_EQ(runs, 3);
  }
}

}  // namespace
}  // namespace terrace::engine
