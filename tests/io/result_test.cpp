// Result<T>: the names it shares with std::expected, ownership of its value, and its end without
// one.
#include "terrace/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <version>

#if defined(__cpp_lib_expected)
#include <expected>
#endif

namespace terrace {
namespace {

static_assert(std::is_trivially_copyable_v<Error>);
static_assert(!std::is_copy_constructible_v<Result<int>>);
static_assert(std::is_nothrow_move_constructible_v<Result<std::unique_ptr<int>>>);

// Uses every name that our code may use of a result, of whichever type: std::expected must compile
// here, too.
template <class Expected, class Unexpected>
void uses_the_shared_names(Unexpected no) {
  static_assert(std::is_same_v<typename Expected::value_type, std::string>);
  static_assert(std::is_same_v<typename Expected::error_type, Error>);
  Expected yes = std::string("value");
  EXPECT_TRUE(yes);
  EXPECT_TRUE(yes.has_value());
  EXPECT_EQ(yes.value(), "value");
  EXPECT_EQ(*yes, "value");
  EXPECT_EQ(yes->size(), 5u);
  const Expected& view = yes;
  EXPECT_EQ(*view, "value");
  EXPECT_EQ(view->size(), 5u);
  EXPECT_EQ(*std::move(yes), "value");
  Expected bad = no;
  EXPECT_FALSE(bad);
  EXPECT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, Code::io_error);
  EXPECT_EQ(bad.error().os_error, 5);
  yes = std::move(bad);
  EXPECT_FALSE(yes);
  yes = Expected(std::string("again"));
  EXPECT_EQ(*yes, "again");
}

TEST(Result, HasTheNamesOfExpected) {
  uses_the_shared_names<Result<std::string>>(fail(Code::io_error, "disk", 5));
#if defined(__cpp_lib_expected)
  uses_the_shared_names<std::expected<std::string, Error>>(
      std::unexpected(Error{Code::io_error, 5, "disk"}));
#endif
}

TEST(Result, VoidCarriesTheError) {
  const Result<void> good;
  EXPECT_TRUE(good);
  good.value();
  const Result<void> bad = fail(Code::closed, "closed");
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::closed);
  EXPECT_STREQ(bad.error().message, "closed");
}

TEST(Result, DestroysItsValueOnce) {
  auto counter = std::make_shared<int>(0);
  {
    Result<std::shared_ptr<int>> first = counter;
    EXPECT_EQ(counter.use_count(), 2);
    Result<std::shared_ptr<int>> second = std::move(first);
    EXPECT_EQ(counter.use_count(), 2);
    second = fail(Code::busy, "busy");
    EXPECT_EQ(counter.use_count(), 1);
  }
  EXPECT_EQ(counter.use_count(), 1);
}

TEST(ResultDeathTest, AValueThatIsNotThereEndsTheProcessWithTheReason) {
  Result<int> bad = fail(Code::no_space, "every slot is in use", 28);
  EXPECT_DEATH((void)bad.value(), "no_space: every slot is in use \\(os_error 28\\)");
  EXPECT_DEATH((void)*bad, "no_space");
  const Result<void> nothing = fail(Code::corrupt, "bytes do not verify");
  EXPECT_DEATH(nothing.value(), "corrupt: bytes do not verify");
}

TEST(Code, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::closed); ++code) {
    names.insert(to_string(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Code::closed) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_STREQ(to_string(static_cast<Code>(200)), "unknown");
}

}  // namespace
}  // namespace terrace
