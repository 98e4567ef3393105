// Kind FAILURE-REPORTING: what failed is never taken for a success, and nothing at all is a valid
// amount.
#include "fault/world.hpp"

namespace terrace::test {
namespace {

class FailureReporting : public testing::Test {
 protected:
  FailureReporting() : engine_(options()) {}

  Options options() {
    Options options = toy_options(64, 32, folder_.path());
    options.device = device_;
    return options;
  }

  void expect_at_rest() {
    EXPECT_TRUE(engine_.cache().flush(10s));
    for (int i = 0; i < 200; ++i) engine_.cache().poll(100us);
    engine_.check_nothing_pinned();
    engine_.check_conservation();
  }

  const std::shared_ptr<UnrulyDevice> device_ = std::make_shared<UnrulyDevice>();
  const Tokens prompt_ = tokens_from(0, 161);  // 20 blocks
  TemporaryFolder folder_;
  ToyEngine engine_;
};

// O064, O069: of a request's copies, the n-th fails, once. It goes on with what is there, and the
// counts stay whole.
class FailureReportingOfACopy : public FailureReporting, public testing::WithParamInterface<int> {};

TEST_P(FailureReportingOfACopy, IsNeverAHit) {
  device_->fail_copy(static_cast<std::uint32_t>(GetParam()));
  for (int round = 0; round < 3; ++round) {
    engine_.serve(prompt_);  // checks every byte
    engine_.drop({kHbm0});
    if (round > 0) engine_.drop({kHbm0, kDram0});
  }
  EXPECT_TRUE(device_->has_failed());
  engine_.serve(prompt_);
  EXPECT_EQ(engine_.serve(prompt_).cached_tokens, 160U) << "it does not come back";
  expect_at_rest();
}

INSTANTIATE_TEST_SUITE_P(Nth, FailureReportingOfACopy, testing::Range(1, 8));

// O064, O065: a device that is broken for good serves nothing from below, and hangs nobody.
TEST_F(FailureReporting, ABrokenDeviceEndsEveryOperation) {
  engine_.serve(prompt_);
  engine_.drop({kHbm0, kDram0});
  device_->fail_copy(1, true);
  FetchOp fetch;
  ASSERT_TRUE(engine_.model().fetch(engine_.model().match(prompt_).value(), fetch));
  engine_.wait(fetch);
  EXPECT_EQ(fetch.blocks_usable(), 0U);
  EXPECT_EQ(fetch.results()[0].reason, Code::io_error);
  fetch = FetchOp();
  EXPECT_EQ(engine_.serve(prompt_).cached_tokens, 0U);  // computed again
  EXPECT_EQ(engine_.serve(prompt_).cached_by_place[kHbm0], 160U);
  expect_at_rest();
}

// O067: zero blocks everywhere.
TEST_F(FailureReporting, NothingIsAValidAmount) {
  Model& model = engine_.model();
  const Match match = model.match({}).value();
  EXPECT_EQ(match.block_count(), 0U);
  EXPECT_TRUE(match.runs().empty());
  FetchOp fetch;
  ASSERT_TRUE(model.fetch(model.match({}).value(), fetch));
  engine_.wait(fetch);
  EXPECT_EQ(fetch.blocks_usable(), 0U);
  EXPECT_TRUE(fetch.results().empty());
  EXPECT_TRUE(fetch.gate(0, engine_.stream()));
  ReadLease prefix = fetch.take_lease();
  WriteLease none = model.reserve(prefix, 0).value();
  const CommitResult result = model.commit(none, {}, {}, prefix).value();
  EXPECT_EQ(result.published + result.duplicate + result.unpublished, 0U);
  EXPECT_EQ(engine_.cache().drop({}, 1s).value(), 0U);
  EXPECT_EQ(engine_.cache().read_events(0, {}), 0U);
  EXPECT_FALSE(engine_.cache().poll());
  expect_at_rest();
}

// O067: an open() that fails costs nobody anything.
TEST_F(FailureReporting, AnOpenThatFailsHarmsNobodyElse) {
  engine_.serve(prompt_);
  EXPECT_EQ(Cache::open(options(), toy_layout()).error().code, Code::busy);
  const std::string nowhere = folder_ / "missing/parent";
  EXPECT_EQ(Cache::open(toy_options(8, 8, nowhere), toy_layout()).error().code, Code::io_error);
  EXPECT_EQ(engine_.serve(prompt_).cached_tokens, 160U);
  engine_.drop({kHbm0, kDram0});
  EXPECT_EQ(engine_.serve(prompt_).cached_by_place[kNvme0], 160U);
}

}  // namespace
}  // namespace terrace::test
