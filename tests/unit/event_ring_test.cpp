// The event ring: every field comes back, and who is overtaken can tell.
#include "base/event_ring.hpp"

#include <gtest/gtest.h>

#include <array>

namespace terrace::internal {
namespace {

constexpr std::uint32_t kCapacity = 16;
constexpr std::uint64_t kIncarnation = 77;

// No two fields of it, and no two events, are alike.
Event event(std::uint32_t number) {
  return {.time_ns = 1'000'000'000'000 + number,
          .place = static_cast<PlaceId>(number % kPlaceCount),
          .from = static_cast<BlockState>(number % 4),
          .to = static_cast<BlockState>((number + 1) % 4),
          .depth = 1'000'000 + number,
          .key = {.low = 10 + number, .high = ~std::uint64_t{number}},
          .parent = {.low = ~std::uint64_t{number} << 8, .high = 90 + number}};
}

void expect_event(const Event& read, std::uint32_t number) {
  const Event pushed = event(number);
  EXPECT_EQ(read.sequence, number);
  EXPECT_EQ(read.incarnation, kIncarnation);
  EXPECT_EQ(read.time_ns, pushed.time_ns);
  EXPECT_EQ(read.place, pushed.place);
  EXPECT_EQ(read.from, pushed.from);
  EXPECT_EQ(read.to, pushed.to);
  EXPECT_EQ(read.depth, pushed.depth);
  EXPECT_EQ(read.key, pushed.key);
  EXPECT_EQ(read.parent, pushed.parent);
}

TEST(EventRing, GivesBackEveryFieldInPieces) {
  EventRing ring(kCapacity, kIncarnation);
  std::array<Event, 5> out;
  EXPECT_EQ(ring.read(0, out), 0u);
  for (std::uint32_t i = 0; i < kCapacity; ++i) ring.push(event(i));
  std::uint32_t next = 0;
  while (const std::size_t count = ring.read(next, out)) {
    for (std::size_t i = 0; i < count; ++i) expect_event(out[i], next++);
  }
  EXPECT_EQ(next, kCapacity);
  EXPECT_EQ(ring.read(kCapacity + 1, out), 0u) << "what was not yet";
}

TEST(EventRing, WhoIsOvertakenFindsAGapAndThenTheOldestThereIs) {
  EventRing ring(kCapacity, kIncarnation);
  for (std::uint32_t i = 0; i < 3 * kCapacity + 5; ++i) ring.push(event(i));
  std::array<Event, 2 * kCapacity> out;
  ASSERT_EQ(ring.read(7, out), kCapacity);
  for (std::uint32_t i = 0; i < kCapacity; ++i) expect_event(out[i], 2 * kCapacity + 5 + i);
}

}  // namespace
}  // namespace terrace::internal
