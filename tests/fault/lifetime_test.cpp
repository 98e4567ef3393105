// Kind LIFETIME: what somebody relies on is neither evicted, nor reused, nor freed twice.
#include <thread>

#include "fault/world.hpp"
#include "memory/slot_pool.hpp"

namespace terrace::test {
namespace {

// O016: everything else leaves while a match waits to be fetched.
TEST(Lifetime, AMatchIsReadableWhateverOthersCommit) {
  ToyEngine engine(toy_options(6, 0));
  const Tokens prompt = tokens_from(0, 25);  // 3 of 6 blocks
  engine.serve(prompt);
  Match match = engine.model().match(prompt).value();
  ASSERT_EQ(match.block_count(), 3U);
  std::thread([&engine] {
    for (std::uint32_t i = 1; i < 20; ++i) engine.serve(tokens_from(i * 1000, 25));
  }).join();
  EXPECT_EQ(engine.model().match(tokens_from(1000, 25))->block_count(), 0U) << "nobody had to go";
  FetchOp fetch;
  ASSERT_TRUE(engine.model().fetch(std::move(match), fetch));
  EXPECT_EQ(engine.take_checked(fetch, prompt).slots().size(), 3U);
}

// O018: the copies of a load are enqueued, and have not run, while its source's tier is flooded.
TEST(Lifetime, TheSourceOfALoadStaysUntilItsCopiesHaveRun) {
  const auto device = std::make_shared<UnrulyDevice>();
  TemporaryFolder folder;
  Options options = toy_options(64, 8, folder.path());
  options.device = device;
  ToyEngine engine(options);
  const Tokens loaded = tokens_from(0, 33);  // 4 blocks
  const Tokens flood = tokens_from(5000, 161);
  engine.serve(flood);
  engine.serve(loaded);
  engine.drop({kHbm0, kDram0});
  engine.serve(loaded);
  engine.drop({kHbm0});  // in DRAM it is still

  device->stand_still(true);
  FetchOp load;
  ASSERT_TRUE(engine.model().fetch(engine.model().match(loaded).value(), load));
  engine.cache().poll();
  ASSERT_TRUE(load.done()) << "enqueued: that is what done() means";
  FetchOp other;  // 20 blocks from NVMe, through the 4 slots that are left
  ASSERT_TRUE(engine.model().fetch(engine.model().match(flood).value(), other));
  for (int i = 0; i < 200; ++i) engine.cache().poll(100us);
  EXPECT_FALSE(other.done());
  EXPECT_EQ(engine.cache().stats().places[kDram0].free_blocks, 0U) << "no flood, no danger";

  device->stand_still(false);
  EXPECT_EQ(engine.take_checked(load, loaded).slots().size(), 4U);
  EXPECT_EQ(engine.take_checked(other, flood).slots().size(), 20U);
}

// O019: inside, a second release ends the process; outside, there is no way to say it.
TEST(LifetimeDeathTest, ASlotIsNotFreedTwice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  internal::SlotPool pool(2);
  const std::uint32_t slot = pool.acquire();
  pool.release(slot);
  EXPECT_DEATH(pool.release(slot), "is_used|State::used");
  EXPECT_DEATH(pool.release(7), "capacity");
  EXPECT_EQ(pool.free(), 2U);
  EXPECT_EQ(pool.used(), 0U);
}

TEST(Lifetime, ALeaseGivesBackOnce) {
  ToyEngine engine(toy_options(4, 0));
  ReadLease lease = engine.prefill(tokens_from(0, 32));
  ReadLease moved = std::move(lease);
  moved.release();
  moved.release();
  lease.release();  // NOLINT: what was moved from has nothing to give
  EXPECT_TRUE(engine.cache().flush(10s));
  EXPECT_EQ(engine.cache().stats().places[kHbm0].used_blocks, 4U);
  engine.check_nothing_pinned();
  EXPECT_EQ(engine.serve(tokens_from(0, 33)).cached_tokens, 32U);
}

// O021: what match() says, fetch() brings, at every step of a spill, an eviction and a way back.
TEST(Lifetime, WhatMatchPromisesFetchDelivers) {
  TemporaryFolder folder;
  ToyEngine engine(toy_options(64, 32, folder.path()));
  std::uint32_t delivered = 0;
  for (std::uint32_t round = 0; round < 60; ++round) {
    const Tokens prompt = tokens_from(round / 3 * 1000, 49);  // each three times
    engine.prefill(prompt).release();
    for (std::uint32_t polls = round % 7; polls > 0; --polls) engine.cache().poll();
    if (round % 5 == 0) engine.drop_soon({kHbm0});
    if (round % 5 == 1) engine.drop_soon({kHbm0, kDram0});
    Match match = engine.model().match(prompt).value();
    const std::uint32_t promised = match.block_count();
    FetchOp fetch;
    ASSERT_TRUE(engine.model().fetch(std::move(match), fetch));
    EXPECT_EQ(engine.take_checked(fetch, prompt).slots().size(), promised) << "round " << round;
    delivered += promised;
  }
  EXPECT_GT(delivered, 200U);
}

}  // namespace
}  // namespace terrace::test
