// Operations end exactly once, whatever happens to them, and give everything back.
#include "cache/harness.hpp"

namespace terrace::test {
namespace {

class OperationTest : public testing::Test {
 protected:
  OperationTest() : engine_(toy_options(64, 32, folder_.path())) {
    engine_.serve(prompt_);
    engine_.drop({kHbm0, kDram0});
  }

  void settle() {
    EXPECT_TRUE(engine_.cache().flush(10s));
    engine_.wait_until_unpinned();  // reads that nobody waits for any more
    engine_.check_conservation();
  }

  const Tokens prompt_ = tokens_from(0, 201);  // 25 blocks, on NVMe
  TemporaryFolder folder_;
  ToyEngine engine_;
};

TEST_F(OperationTest, IdenticalLoadsShareOneFlight) {
  const std::uint64_t before = engine_.cache().stats().places[kNvme0].bytes_read;
  FetchOp ops[4];
  for (FetchOp& op : ops)
    ASSERT_TRUE(engine_.model().fetch(engine_.model().match(prompt_).value(), op));
  for (FetchOp& op : ops) {
    engine_.wait(op);
    EXPECT_EQ(op.blocks_usable(), 25u);
  }
  EXPECT_EQ(engine_.cache().stats().places[kNvme0].bytes_read - before,
            25 * toy_layout().block_bytes());
}

TEST_F(OperationTest, CancelledOrDroppedAtEveryStep) {
  for (int steps = 0; steps < 40; ++steps) {
    engine_.drop({kHbm0, kDram0});
    {
      FetchOp op;
      ASSERT_TRUE(engine_.model().fetch(engine_.model().match(prompt_).value(), op));
      for (int i = 0; i < steps; ++i) engine_.cache().poll(20us);
      if (steps % 2 == 0) {
        op.cancel();
        engine_.wait(op);
        EXPECT_LE(op.blocks_usable(), 25u);
        for (std::uint32_t i = op.blocks_usable(); i < 25; ++i)
          EXPECT_EQ(op.results()[i].reason, Code::cancelled);
      }
    }
    settle();
  }
  EXPECT_EQ(engine_.serve(prompt_).cached_tokens, 200u);
}

TEST_F(OperationTest, ADeadlineEndsItWithThePrefixThatIsThere) {
  FetchOp op;
  OperationOptions options;
  options.deadline = 1ns;
  options.user_data = 77;
  ASSERT_TRUE(engine_.model().fetch(engine_.model().match(prompt_).value(), op, options));
  engine_.wait(op);
  EXPECT_EQ(op.user_data(), 77u);
  EXPECT_EQ(op.blocks_usable(), 0u);
  EXPECT_EQ(op.results()[0].reason, Code::deadline_exceeded);
  ReadLease lease = op.take_lease();
  EXPECT_EQ(lease.prefix().blocks, 0u);
  EXPECT_EQ(lease.prefix().tip, lease.prefix().root);
  lease.release();
  settle();
}

TEST_F(OperationTest, DroppedMatchesGiveTheirPinsBack) {
  for (int i = 0; i < 1000; ++i) {
    Match match = engine_.model().match(prompt_).value();
    Match moved = std::move(match);
    EXPECT_EQ(moved.block_count(), 25u);
    match = std::move(moved);
  }
  settle();
}

TEST_F(OperationTest, TooManyAreToldToRetryAndKeepTheirMatch) {
  Options options = toy_options(16, 16);
  options.fetches_max = 2;
  ToyEngine small(options);
  FetchOp ops[3];
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(small.model().fetch(small.model().match(prompt_).value(), ops[i]));
  Match match = small.model().match(prompt_).value();
  EXPECT_EQ(small.model().fetch(std::move(match), ops[2]).error().code, Code::retry_later);
  ops[0] = FetchOp();
  EXPECT_TRUE(small.model().fetch(std::move(match), ops[2]));
}

TEST_F(OperationTest, HbmTooSmallForTheMatchGivesWhatFits) {
  Options options = toy_options(10, 64);
  ToyEngine engine(options);
  ReadLease first = engine.prefill(tokens_from(0, 80));
  EXPECT_TRUE(engine.cache().flush(10s));
  first.release();
  engine.drop({kHbm0});
  ReadLease held = engine.prefill(tokens_from(5000, 48));  // six of ten slots
  FetchOp op;
  ASSERT_TRUE(engine.model().fetch(engine.model().match(tokens_from(0, 80)).value(), op));
  engine.wait(op);
  EXPECT_EQ(op.blocks_usable(), 4u);
  EXPECT_EQ(op.results()[4].reason, Code::no_space);
}

TEST_F(OperationTest, OutliveTheirCache) {
  FetchOp op;
  ReadLease lease;
  {
    ToyEngine engine(toy_options(64, 32));
    lease = engine.prefill(tokens_from(0, 64));
    ASSERT_TRUE(engine.model().fetch(engine.model().match(tokens_from(0, 64)).value(), op));
    EXPECT_TRUE(engine.cache().close());
  }
  EXPECT_EQ(lease.slots().size(), 8u);
}

}  // namespace
}  // namespace terrace::test
