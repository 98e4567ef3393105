// A look into a slot index that nobody has open: it finds what whoever opens it finds, sees damage,
// and leaves every file as it was.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <thread>

#include "index/sample.hpp"
#include "index/slot_index.hpp"
#include "support/damage.hpp"

namespace terrace::internal {
namespace {

#if defined(TERRACE_WITH_ROCKSDB)

constexpr std::uint32_t kSlots = 500;
constexpr std::uint32_t kEntryBytes = 400;

class IndexReaderTest : public testing::Test {
 protected:
  std::unique_ptr<SlotIndex> open() {
    auto index = open_rocks_slot_index(path_, kSlots, kEntryBytes);
    EXPECT_TRUE(index);
    return std::move(*index);
  }
  static void put(SlotIndex& index, std::uint32_t slot, char fill) {
    const std::string entry(kEntryBytes, fill);
    while (!index.put(slot, std::as_bytes(std::span(entry)))) std::this_thread::yield();
  }
  // In tables and in a log: the first generation is in tables once the second start has read it.
  void write_twice() {
    for (const char fill : {'a', 'b'}) {
      auto index = open();
      for (std::uint32_t slot = 0; slot < kSlots; slot += fill == 'a' ? 1 : 2) {
        put(*index, slot, fill);
      }
      ASSERT_TRUE(index->mark_complete());
    }
  }

  std::map<std::uint32_t, std::string> found_;
  Result<bool> read() {
    found_.clear();
    return read_rocks_slot_index(
        path_, kEntryBytes, [&](std::uint32_t slot, std::span<const std::byte> header) {
          found_[slot] = {reinterpret_cast<const char*>(header.data()), header.size()};
        });
  }

  test::TempDir directory_;
  const std::string path_ = directory_ / "index";
};

TEST_F(IndexReaderTest, FindsWhatWasWrittenAndChangesNothing) {
  write_twice();
  const auto before = test::files_of(directory_.path());
  const auto complete = read();
  ASSERT_TRUE(complete) << complete.error().message;
  EXPECT_TRUE(*complete);
  ASSERT_EQ(found_.size(), kSlots);
  EXPECT_EQ(found_[6], std::string(kEntryBytes, 'b'));
  EXPECT_EQ(found_[7], std::string(kEntryBytes, 'a'));
  EXPECT_TRUE(before == test::files_of(directory_.path()));
}

TEST_F(IndexReaderTest, TellsWhereItIsNotComplete) {
  { put(*open(), 3, 'a'); }
  const auto complete = read();
  ASSERT_TRUE(complete);
  EXPECT_FALSE(*complete);
  EXPECT_EQ(found_.size(), 1U);
}

// kill -9 leaves a log that ends in the middle of an update.
TEST_F(IndexReaderTest, AnIncompleteEndOfTheLogIsNoDamage) {
  write_twice();
  std::filesystem::path last;
  for (const auto& file : std::filesystem::directory_iterator(path_)) {
    const bool is_log = file.path().extension() == ".log" && file.file_size() >= 100;
    if (is_log && file.path() > last) last = file.path();
  }
  ASSERT_FALSE(last.empty());
  std::filesystem::resize_file(last, std::filesystem::file_size(last) - 5);
  EXPECT_TRUE(read());
  EXPECT_EQ(found_.size(), kSlots);
}

TEST_F(IndexReaderTest, AFlippedByteIsDamageAndStays) {
  for (const char* kind : {".log", ".sst", "MANIFEST", "CURRENT"}) {
    std::filesystem::remove_all(path_);
    write_twice();
    ASSERT_TRUE(read()) << kind;
    int damaged = 0;
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      if (file.path().filename().string().find(kind) == std::string::npos) continue;
      if (file.file_size() > 0) damaged += test::flip_byte(file.path(), file.file_size() / 3);
    }
    ASSERT_GT(damaged, 0) << kind;
    const auto before = test::files_of(directory_.path());
    const auto complete = read();
    ASSERT_FALSE(complete) << kind;
    EXPECT_EQ(complete.error().code, Code::corrupt) << kind;
    EXPECT_TRUE(before == test::files_of(directory_.path())) << kind;
  }
}

TEST_F(IndexReaderTest, WhereThereIsNoneNoneIsMade) {
  ASSERT_FALSE(read());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

#else

TEST(IndexReaderTest, NeedsRocksDb) {
  GTEST_SKIP() << "built without RocksDB";
}

#endif

}  // namespace
}  // namespace terrace::internal
