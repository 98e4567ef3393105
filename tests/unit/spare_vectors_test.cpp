#include "memory/spare_vectors.hpp"

#include <gtest/gtest.h>

namespace terrace::internal {
namespace {

TEST(SpareVectors, WhoeverTakesNextHasTheRoomOfTheLastOne) {
  SpareVectors<int> spares;
  std::vector<int> first = spares.take();
  EXPECT_EQ(first.capacity(), 0u);
  first.assign(1000, 7);
  const int* memory = first.data();
  spares.give(std::move(first));
  const std::vector<int> second = spares.take();
  EXPECT_TRUE(second.empty());
  EXPECT_GE(second.capacity(), 1000u);
  EXPECT_EQ(second.data(), memory);
  EXPECT_EQ(spares.take().capacity(), 0u) << "lent twice";
}

TEST(SpareVectors, ALoanIsGivenBack) {
  SpareVectors<int> spares;
  { SpareVectors<int>::Loan(spares)->resize(1000); }
  EXPECT_GE(spares.take().capacity(), 1000u);
}

TEST(SpareVectors, KeepsOnlySoMany) {
  SpareVectors<int> spares;
  for (int i = 0; i < 1000; ++i) spares.give(std::vector<int>(10));
  int kept = 0;
  while (spares.take().capacity() > 0) ++kept;
  EXPECT_EQ(kept, 64);
}

}  // namespace
}  // namespace terrace::internal
