// Entry point of every GoogleTest binary: as gtest_main, and a run in which every test was skipped
// exits with 77, so that ctest counts it as skipped and never as passed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  const auto& unit = *testing::UnitTest::GetInstance();
  const bool all_skipped =
      unit.skipped_test_count() > 0 && unit.skipped_test_count() == unit.test_to_run_count();
  return failed != 0 ? failed : (all_skipped ? 77 : 0);
}
