// Kind LEAK: whatever way an operation ends, all that it held is given back; and only what is
// really free counts as free.
#include "fault/world.hpp"

namespace terrace::test {
namespace {

// O023: a third of the lookups is dropped unread, a third is cancelled, a third is read.
TEST(Leak, LookupsThatEndInEveryWayPinNothing) {
  TemporaryFolder folder;
  ToyEngine engine(toy_options(32, 16, folder.path()));
  const Tokens prompt = tokens_from(0, 33);
  engine.serve(prompt);
  for (int i = 0; i < 30'000; ++i) {
    if (i % 1000 == 0) engine.drop({kHbm0, kDram0});
    Match match = engine.model().match(prompt).value();
    if (i % 3 == 0) continue;
    FetchOp fetch;
    ASSERT_TRUE(engine.model().fetch(std::move(match), fetch));
    if (i % 3 == 1) {
      fetch.cancel();
    } else {
      engine.wait(fetch);
      (void)fetch.take_lease();
    }
  }
  EXPECT_TRUE(engine.cache().flush(10s));
  engine.check_nothing_pinned();
  engine.check_conservation();
  // All of it can be had again.
  ReadLease none = engine.prefill(tokens_from(9000, 1));
  EXPECT_TRUE(engine.model().reserve(none, 32));
}

// O024: every block of the arena is waiting for a stream that stands still.
TEST(Leak, VictimsThatCannotLeaveAreNotCountedAndNotTouched) {
  const auto device = std::make_shared<UnrulyDevice>();
  Options options = toy_options(4, 0);
  options.device = device;
  ToyEngine engine(options);
  ReadLease lease = engine.prefill(tokens_from(0, 32));
  ReadLease none = engine.prefill(tokens_from(9000, 1));
  device->stand_still(true);
  std::byte from[64] = {};
  std::byte to[64] = {};
  const Copy copy{to, from, sizeof from};  // stands for a kernel that still reads the blocks
  ASSERT_TRUE(device->copy(engine.stream(), std::span(&copy, 1)));
  lease.release(device->record(engine.stream()).value());

  std::vector<Event> events(100);
  const std::size_t before = engine.cache().read_events(0, events);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(engine.model().reserve(none, 1).error().code, Code::no_space);
    engine.cache().poll();
  }
  EXPECT_EQ(engine.cache().read_events(0, events), before) << "a victim has changed its state";
  EXPECT_EQ(engine.model().match(tokens_from(0, 33))->block_count(), 4U);

  device->stand_still(false);
  engine.cache().poll();
  EXPECT_TRUE(engine.model().reserve(none, 4));
}

}  // namespace
}  // namespace terrace::test
