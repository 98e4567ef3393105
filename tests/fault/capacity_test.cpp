// Kind CAPACITY: limits hold, waits end, and the smallest sizes work or are refused.
#include <algorithm>

#include "fault/world.hpp"

namespace terrace::test {
namespace {

// O025: an arena of one block.
TEST(Capacity, OneBlockMakesRoomForTheNext) {
  ToyEngine engine(toy_options(1, 0));
  engine.serve(tokens_from(0, 9));
  EXPECT_EQ(engine.serve(tokens_from(0, 9)).cached_tokens, 8U);
  engine.serve(tokens_from(500, 9));
  EXPECT_EQ(engine.cache().stats().places[kHbm0].used_blocks, 1U);
  EXPECT_EQ(engine.model().match(tokens_from(0, 9))->block_count(), 0U);
  EXPECT_EQ(engine.serve(tokens_from(500, 9)).cached_tokens, 8U);
}

// O025: one byte less than a block is refused; nothing at all switches the tier off.
TEST(Capacity, LessThanABlockIsRefusedAndNothingIsNoTier) {
  const Layout layout = toy_layout();
  Options options;
  options.hbm_bytes = layout.block_bytes() - 1;
  EXPECT_EQ(Cache::open(options, layout).error().code, Code::invalid_argument);
  options.hbm_bytes = layout.block_bytes();
  options.dram_bytes = layout.block_bytes();  // a record has a header beside it
  EXPECT_EQ(Cache::open(options, layout).error().code, Code::invalid_argument);
  options.dram_bytes = 0;
  ToyEngine engine(options);
  engine.serve(tokens_from(0, 9));
  EXPECT_EQ(engine.cache().stats().places[kDram0].capacity_blocks, 0U);
  EXPECT_EQ(engine.cache().stats().places[kNvme0].capacity_blocks, 0U);
}

// O026: every slot of the staging tier is held by copies that do not run.
TEST(Capacity, AFullStagingTierEndsAWaitAtItsDeadline) {
  const auto device = std::make_shared<UnrulyDevice>();
  TemporaryFolder folder;
  Options options = toy_options(64, 8, folder.path());
  options.device = device;
  ToyEngine engine(options);
  const Tokens first = tokens_from(0, 65);  // as many blocks as DRAM has
  const Tokens second = tokens_from(5000, 65);
  engine.serve(first);
  engine.serve(second);
  engine.drop({kHbm0, kDram0});

  device->stand_still(true);
  FetchOp holder;
  ASSERT_TRUE(engine.model().fetch(engine.model().match(first).value(), holder));
  engine.wait(holder);  // enqueued, not run
  FetchOp waiter;
  OperationOptions soon;
  soon.deadline = 20ms;
  ASSERT_TRUE(engine.model().fetch(engine.model().match(second).value(), waiter, soon));
  engine.wait(waiter);
  EXPECT_EQ(waiter.blocks_usable(), 0U);
  EXPECT_EQ(waiter.results()[0].reason, Code::deadline_exceeded);

  device->stand_still(false);
  EXPECT_EQ(engine.take_checked(holder, first).slots().size(), 8U);
  waiter = FetchOp();
  EXPECT_EQ(engine.serve(second).cached_tokens, 64U) << "it was never lost";
}

// O028: blocks are records in one file, so that no directory grows with them.
TEST(Capacity, FilesDoNotGrowInNumberWithBlocks) {
  TemporaryFolder folder;
  const auto files = [&folder] {
    std::filesystem::recursive_directory_iterator all(folder.path());
    return std::ranges::count_if(all, [](const auto& entry) { return entry.is_regular_file(); });
  };
  ToyEngine engine(toy_options(64, 64, folder.path(), 24 * MiB));
  engine.serve(tokens_from(0, 9));
  const auto with_one = files();
  for (std::uint32_t i = 1; i < 80; ++i) engine.serve(tokens_from(i * 1000, 257));
  EXPECT_GT(engine.cache().stats().places[kNvme0].used_blocks, 2000U);
  EXPECT_EQ(files(), with_one);
}

}  // namespace
}  // namespace terrace::test
