// I13: only an operation's own, full-length completion finishes it. Every completion a kernel could
// send, by hand.
#include "io/request_table.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace terrace::internal {
namespace {

using Outcome = RequestTable::Outcome;

alignas(4096) std::byte memory[16 * 4096];

IoRequest read_blocks(std::uint32_t blocks, std::uint64_t user_data = 7) {
  return {IoRequest::Kind::read, 8192, memory, blocks * 4096, user_data};
}

TEST(I13OwnCompletionOnly, TheFullLengthFinishes) {
  RequestTable table(2);
  IoResult result{99, 99};
  auto tag = table.add(read_blocks(4));
  EXPECT_EQ(table.in_flight(), 1u);
  EXPECT_EQ(table.complete(tag, 4 * 4096, result), Outcome::done);
  EXPECT_EQ(result.user_data, 7u);
  EXPECT_EQ(result.os_error, 0);
  EXPECT_EQ(table.in_flight(), 0u);
}

TEST(I13OwnCompletionOnly, ADuplicateFinishesNothing) {
  RequestTable table(1);
  IoResult result;
  auto first = table.add(read_blocks(1, 1));
  ASSERT_EQ(table.complete(first, 4096, result), Outcome::done);
  EXPECT_EQ(table.complete(first, 4096, result), Outcome::foreign);
  // The slot's next owner is not finished by the old owner's late completion.
  auto second = table.add(read_blocks(1, 2));
  EXPECT_NE(first, second);
  EXPECT_EQ(table.complete(first, 4096, result), Outcome::foreign);
  EXPECT_EQ(table.complete(first, -EIO, result), Outcome::foreign);
  EXPECT_EQ(table.in_flight(), 1u);
  EXPECT_EQ(table.complete(second, 4096, result), Outcome::done);
  EXPECT_EQ(result.user_data, 2u);
}

TEST(I13OwnCompletionOnly, AForeignOneFinishesNothing) {
  RequestTable table(4);
  IoResult result;
  auto tag = table.add(read_blocks(1));
  for (RequestTable::Tag foreign : {RequestTable::Tag{0}, ~RequestTable::Tag{0}, tag + 1, tag + 4,
                                    tag + (RequestTable::Tag{1} << 32)}) {
    EXPECT_EQ(table.complete(foreign, 4096, result), Outcome::foreign);
  }
  EXPECT_EQ(table.in_flight(), 1u);
}

TEST(I13OwnCompletionOnly, AShortOneIsContinued) {
  RequestTable table(1);
  IoResult result;
  auto tag = table.add(read_blocks(4));
  EXPECT_EQ(table.complete(tag, 4096 + 100, result), Outcome::again);
  const IoVector& rest = table.rest(tag);
  EXPECT_EQ(rest.offset(), 8192u + 4096u) << "continues at a whole block";
  ASSERT_EQ(rest.pieces().size(), 1u);
  EXPECT_EQ(rest.pieces()[0].iov_base, memory + 4096);
  EXPECT_EQ(rest.left_bytes(), 3u * 4096);
  EXPECT_EQ(table.complete(tag, 4 * 4096, result), Outcome::done);
  EXPECT_EQ(result.os_error, EIO) << "more than the rest is not trusted";
}

TEST(I13OwnCompletionOnly, AShortOneOfARunIsContinuedInTheRightPiece) {
  RequestTable table(1);
  IoResult result;
  IoRequest run = read_blocks(2);
  const IoPiece more[] = {{memory + 4 * 4096, 3 * 4096}, {memory + 7 * 4096, 4096}};
  run.more = more;
  auto tag = table.add(run);
  EXPECT_EQ(table.rest(tag).pieces().size(), 2u) << "pieces that touch in memory are one";
  EXPECT_EQ(table.complete(tag, 3 * 4096 + 512, result), Outcome::again);
  const IoVector& rest = table.rest(tag);
  EXPECT_EQ(rest.offset(), 8192u + 3 * 4096u);
  ASSERT_EQ(rest.pieces().size(), 1u);
  EXPECT_EQ(rest.pieces()[0].iov_base, memory + 5 * 4096);
  EXPECT_EQ(table.complete(tag, 3 * 4096, result), Outcome::done);
  EXPECT_EQ(result.os_error, 0);
}

// Counted twice, a part would finish a request that has a hole.
TEST(I13OwnCompletionOnly, ADuplicateOfAShortOneCountsOnce) {
  RequestTable table(1);
  IoResult result;
  auto tag = table.add(read_blocks(4));
  auto late = tag;
  ASSERT_EQ(table.complete(tag, 2 * 4096, result), Outcome::again);
  EXPECT_NE(tag, late);
  EXPECT_EQ(table.complete(late, 2 * 4096, result), Outcome::foreign);
  EXPECT_EQ(table.rest(tag).left_bytes(), 2u * 4096);
  EXPECT_EQ(table.complete(tag, 2 * 4096, result), Outcome::done);
  EXPECT_EQ(result.os_error, 0);
}

TEST(I13OwnCompletionOnly, ManyShortOnesAddUp) {
  RequestTable table(1);
  IoResult result;
  auto tag = table.add(read_blocks(16));
  for (int i = 0; i < 15; ++i) ASSERT_EQ(table.complete(tag, 4096, result), Outcome::again);
  EXPECT_EQ(table.complete(tag, 4096, result), Outcome::done);
  EXPECT_EQ(result.os_error, 0);
}

TEST(RequestTable, EndOfFileIsAnError) {
  RequestTable table(1);
  IoResult result;
  auto tag = table.add(read_blocks(2));
  EXPECT_EQ(table.complete(tag, 4096, result), Outcome::again);
  EXPECT_EQ(table.complete(tag, 0, result), Outcome::done);
  EXPECT_EQ(result.os_error, EIO);
}

TEST(RequestTable, TransientErrorsAreRetriedButNotForEver) {
  for (const int error : {EAGAIN, EINTR, ECANCELED}) {
    RequestTable table(1);
    IoResult result;
    auto tag = table.add(read_blocks(1));
    int attempts = 0;
    while (table.complete(tag, -error, result) == Outcome::again) ASSERT_LT(++attempts, 100);
    EXPECT_GT(attempts, 2);
    EXPECT_EQ(result.os_error, error);
  }
}

TEST(RequestTable, PartsWithoutAWholeBlockEndAsAnError) {
  RequestTable table(1);
  IoResult result;
  auto tag = table.add(read_blocks(1));
  int attempts = 0;
  while (table.complete(tag, 512, result) == Outcome::again) ASSERT_LT(++attempts, 100);
  EXPECT_EQ(result.os_error, EIO);
}

TEST(RequestTable, ASyncTransfersNothing) {
  RequestTable table(1);
  IoResult result;
  IoRequest sync;
  sync.kind = IoRequest::Kind::sync;
  auto tag = table.add(sync);
  EXPECT_EQ(table.complete(tag, 0, result), Outcome::done);
  EXPECT_EQ(result.os_error, 0);
  tag = table.add(sync);
  EXPECT_EQ(table.complete(tag, -EIO, result), Outcome::done);
  EXPECT_EQ(result.os_error, EIO);
  tag = table.add(sync);
  EXPECT_EQ(table.complete(tag, -EINTR, result), Outcome::again);
  EXPECT_EQ(table.complete(tag, 0, result), Outcome::done);
  EXPECT_EQ(result.os_error, 0);
}

TEST(RequestTable, OtherErrorsAreTheResult) {
  RequestTable table(1);
  IoResult result;
  auto tag = table.add(read_blocks(1));
  EXPECT_EQ(table.complete(tag, -ENOSPC, result), Outcome::done);
  EXPECT_EQ(result.os_error, ENOSPC);
}

TEST(RequestTable, ARefusedRequestFailsWhateverItsCompletionSays) {
  RequestTable table(1);
  IoResult result;
  auto tag = table.add(read_blocks(1), EINVAL);
  EXPECT_TRUE(table.refused(tag));
  EXPECT_EQ(table.complete(tag, 4096, result), Outcome::done);
  EXPECT_EQ(result.os_error, EINVAL);
}

TEST(RequestTable, IsFullAtItsDepth) {
  RequestTable table(3);
  std::set<RequestTable::Tag> tags;
  for (int i = 0; i < 3; ++i) {
    ASSERT_FALSE(table.full());
    tags.insert(table.add(read_blocks(1)));
  }
  EXPECT_TRUE(table.full());
  EXPECT_EQ(tags.size(), 3u);
}

}  // namespace
}  // namespace terrace::internal
