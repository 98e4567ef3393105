// Inspections of directories that a real cache made: clean, damaged, foreign, empty, in use.
#include "tune/inspect.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/damage.hpp"
#include "tune/fixture.hpp"

namespace terrace::tune {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class InspectTest : public test::DirectoryTest {
 protected:
  struct Said {
    int status;
    std::string out;
    std::string err;
  };
  Said run(InspectOptions options = {}) {
    if (options.path.empty()) options.path = cache_;
    std::ostringstream out;
    std::ostringstream err;
    const int status = inspect(options, out, err, false);
    return {status, out.str(), err.str()};
  }
  // The summary for machines, of a directory that can be inspected.
  json look(int status, bool verify = false, bool live = false) {
    const Said said = run({.path = {}, .verify = verify, .json = true, .live = live});
    EXPECT_EQ(said.status, status) << said.out << said.err;
    EXPECT_EQ(said.err, "");
    return json::parse(said.out);
  }
  std::vector<json> list() {
    const Said said = run({.path = {}, .list = true, .json = true});
    std::vector<json> records;
    std::istringstream lines(said.out);
    for (std::string line; std::getline(lines, line);) records.push_back(json::parse(line));
    return records;
  }
  // Where the first record is in the data file.
  std::uint64_t first_record() {
    return list().at(0).at("slot").get<std::uint64_t>() * kRecordBytes;
  }
  static bool has_rocksdb(const json& report) { return report.at("index").at("present"); }
};

// ---- Clean --------------------------------------------------------------------------------------

TEST_F(InspectTest, ACleanDirectoryIsDescribed) {
  make(kWithIndex);
  const auto before = test::files_of(cache_);
  const json report = look(kClean);
  EXPECT_TRUE(before == test::files_of(cache_)) << "an inspection has changed something";

  EXPECT_EQ(report["path"], cache_);
  EXPECT_EQ(report["lock"],
            (json{{"in_use", false}, {"owner", "process " + std::to_string(::getpid())}}));
  const json& manifest = report["manifest"];
  EXPECT_EQ(manifest["layout"]["block_tokens"], 16);
  EXPECT_EQ(manifest["layout"]["dtype"], "f16");
  EXPECT_EQ(manifest["layout"]["groups"][0]["kv_heads"], 4);
  EXPECT_EQ(manifest["layout"]["layout_digest"], to_hex(layout().layout_digest()));
  EXPECT_EQ(manifest["block_bytes"], kBlockBytes);
  EXPECT_EQ(manifest["record_bytes"], kRecordBytes);
  EXPECT_EQ(manifest["life"], 1);
  EXPECT_EQ(report["disk"]["data_bytes"],
            manifest["slot_count"].get<std::uint64_t>() * kRecordBytes);

  const json& records = report["records"];
  EXPECT_EQ(records["good"], kBlocks);
  EXPECT_EQ(records["not_a_record"], manifest["slot_count"].get<std::uint64_t>() - kBlocks);
  for (const char* verdict : {"unknown_format", "header_damaged", "layout_differs", "other_block",
                              "payload_damaged", "unreadable"}) {
    EXPECT_EQ(records[verdict], 0) << verdict;
  }
  EXPECT_EQ(report["payloads"], (json{{"verified", false}}));
  EXPECT_TRUE(report["damage"].empty());
}

TEST_F(InspectTest, ModelsAndChainsAreCounted) {
  make(kWithoutIndex);
  const json report = look(kClean);
  ASSERT_EQ(report["models"].size(), 2U);
  EXPECT_EQ(report["models"][0]["blocks"], 10);
  EXPECT_EQ(report["models"][0]["tokens"], 160);
  EXPECT_EQ(report["models"][1]["blocks"], 2);
  EXPECT_EQ(report["chains"], (json{{"first_blocks", 2},
                                    {"orphans", 0},
                                    {"unreachable", 0},
                                    {"duplicates", 0},
                                    {"depth_p50", 3},
                                    {"depth_p90", 8},
                                    {"depth_max", 8}}));
  EXPECT_EQ(report["tokens"], 192);
  EXPECT_EQ(report["sequence"]["max"].get<std::uint64_t>() -
                report["sequence"]["min"].get<std::uint64_t>(),
            11U);
}

TEST_F(InspectTest, VerifyReadsEveryPayload) {
  make(kWithoutIndex);
  const json report = look(kClean, true);
  EXPECT_EQ(report["payloads"]["bytes"], kBlocks * kBlockBytes);
  EXPECT_GT(report["payloads"]["gbps"].get<double>(), 0);
}

TEST_F(InspectTest, TheIndexIsReadWhereThereIsOne) {
  make(kWithIndex);
  const json report = look(kClean);
  if (!has_rocksdb(report)) GTEST_SKIP() << "built without RocksDB";
  EXPECT_EQ(report["index"], (json{{"present", true},
                                   {"read", true},
                                   {"complete", true},
                                   {"entries", kBlocks},
                                   {"stale", 0}}));
  EXPECT_GT(report["disk"]["index_bytes_on_disk"], 0);
}

TEST_F(InspectTest, APersonReadsTheSame) {
  make(kWithoutIndex);
  const Said said = run({.path = {}, .verify = true});
  EXPECT_EQ(said.status, kClean);
  EXPECT_THAT(said.out,
              AllOf(HasSubstr(cache_), HasSubstr("free, last held by process"),
                    HasSubstr("f16, 16 tokens a block"), HasSubstr("4 layers x 4 KV heads x 32"),
                    HasSubstr("32 KiB in a record of 36 KiB"), HasSubstr("GB/s"),
                    HasSubstr("384 KiB verified"), HasSubstr("p50 3, p90 8, max 8"),
                    HasSubstr("1.0 to 1.11 (life.count)"),
                    HasSubstr("none: a start scans the records"), HasSubstr("clean\n")));
}

TEST_F(InspectTest, TheListHasALineForEachRecord) {
  make(kWithoutIndex);
  const auto records = list();
  ASSERT_EQ(records.size(), kBlocks);
  const ChainPoint root = *chain_root(test::toy_identity(), layout());
  const ChainPoint first = chain_next(root, test::tokens_from(100, 16));
  char key[33];
  std::snprintf(key, sizeof key, "%016llx%016llx", static_cast<unsigned long long>(first.key.high),
                static_cast<unsigned long long>(first.key.low));
  int firsts = 0;
  for (const json& record : records) {
    EXPECT_EQ(record["verdict"], "good");
    EXPECT_EQ(record["tokens"], 16);
    if (record["key"] != key) continue;
    ++firsts;
    EXPECT_EQ(record["depth"], 0);
    EXPECT_EQ(record["root"], to_hex(root.lineage));
  }
  EXPECT_EQ(firsts, 1);
  const Said said = run({.path = {}, .list = true});
  EXPECT_EQ(std::ranges::count(said.out, '\n'), kBlocks + 1);
  EXPECT_THAT(said.out, HasSubstr(key));
}

// ---- Damaged ------------------------------------------------------------------------------------

TEST_F(InspectTest, ADamagedHeaderIsFound) {
  make(kWithoutIndex);
  ASSERT_TRUE(test::flip_byte(data_, first_record() + 130));
  const json report = look(kDamageFound);
  EXPECT_EQ(report["records"]["header_damaged"], 1);
  EXPECT_EQ(report["records"]["good"], kBlocks - 1);
  EXPECT_THAT(report["damage"], ElementsAre("1 record is header_damaged"));
  const json line = list().at(0);
  EXPECT_EQ(line["verdict"], "header_damaged");
  EXPECT_FALSE(line.contains("key"));
  EXPECT_THAT(run().out, HasSubstr("damage: 1 record is header_damaged"));
}

TEST_F(InspectTest, ADamagedPayloadIsFoundByVerifyAlone) {
  make(kWithoutIndex);
  ASSERT_TRUE(test::flip_byte(data_, first_record() + kRecordBytes - 1));
  EXPECT_EQ(look(kClean)["records"]["good"], kBlocks);
  const json report = look(kDamageFound, true);
  EXPECT_EQ(report["records"]["payload_damaged"], 1);
  EXPECT_EQ(report["payloads"]["bytes"], kBlocks * kBlockBytes);
}

TEST_F(InspectTest, ADamagedIndexIsFound) {
  make(kWithIndex);
  if (!has_rocksdb(look(kClean))) GTEST_SKIP() << "built without RocksDB";
  int damaged = 0;
  for (const auto& file : std::filesystem::directory_iterator(cache_ + "/index")) {
    const std::string name = file.path().filename().string();
    if (name.find("MANIFEST") == 0) damaged += test::flip_byte(file.path(), file.file_size() / 2);
  }
  ASSERT_EQ(damaged, 1);
  const auto before = test::files_of(cache_);
  const json report = look(kDamageFound);
  EXPECT_TRUE(before == test::files_of(cache_));
  EXPECT_FALSE(report["index"]["read"]);
  EXPECT_THAT(report["damage"].dump(), HasSubstr("slot index is damaged"));
  EXPECT_EQ(report["records"]["good"], kBlocks);
}

TEST_F(InspectTest, AStaleEntryIsCountedAndIsNoDamage) {
  make(kWithIndex);
  if (!has_rocksdb(look(kClean))) GTEST_SKIP() << "built without RocksDB";
  // As a power cut leaves it: the entry is there, its record is not.
  std::fstream data(data_, std::ios::in | std::ios::out | std::ios::binary);
  data.seekp(static_cast<std::streamoff>(first_record()));
  data << std::string(kRecordBytes, '\0');
  data.close();
  const json report = look(kClean);
  EXPECT_EQ(report["index"]["entries"], kBlocks);
  EXPECT_EQ(report["index"]["stale"], 1);
  EXPECT_EQ(report["records"]["good"], kBlocks - 1);
}

TEST_F(InspectTest, AShortenedDataFileIsDamage) {
  make(kWithoutIndex);
  std::filesystem::resize_file(data_, std::filesystem::file_size(data_) - 4096);
  EXPECT_THAT(look(kDamageFound)["damage"],
              ElementsAre("blocks.dat ends 4 KiB before its last slot does"));
}

TEST_F(InspectTest, AMissingDataFileIsDamage) {
  make(kWithoutIndex);
  std::filesystem::remove(data_);
  EXPECT_EQ(look(kDamageFound)["records"]["good"], 0);
  EXPECT_FALSE(std::filesystem::exists(data_));
}

TEST_F(InspectTest, ADamagedOrMissingManifestIsDamage) {
  make(kWithoutIndex);
  ASSERT_TRUE(test::flip_byte(manifest_, 40));
  EXPECT_THAT(look(kDamageFound)["damage"].dump(), HasSubstr("terrace.manifest is damaged"));
  EXPECT_THAT(run().out, HasSubstr("empties it"));
  std::filesystem::remove(manifest_);
  EXPECT_THAT(look(kDamageFound)["damage"].dump(), HasSubstr("there is no terrace.manifest"));
}

// ---- What cannot be inspected -------------------------------------------------------------------

TEST_F(InspectTest, AnotherVersionIsLeftToItself) {
  make(kWithoutIndex);
  std::ofstream(manifest_) << "terrace-cache 1\n";
  const Said said = run();
  EXPECT_EQ(said.status, kCannotInspect);
  EXPECT_EQ(said.out, "");
  EXPECT_THAT(said.err, AllOf(HasSubstr(cache_), HasSubstr("another version"), HasSubstr("empty")));
}

TEST_F(InspectTest, WhatIsNoCacheIsRefusedAndLeftAlone) {
  std::filesystem::create_directory(cache_);
  EXPECT_THAT(run().err, HasSubstr("no cache made this directory"));
  std::ofstream(data_) << "precious";
  EXPECT_EQ(run().status, kCannotInspect);
  EXPECT_EQ(run({.path = data_}).status, kCannotInspect);
  EXPECT_THAT(run({.path = data_}).err, HasSubstr("not a directory"));
  EXPECT_THAT(run({.path = directory_ / "nowhere"}).err, HasSubstr("no such directory"));
  EXPECT_EQ(test::files_of(directory_.path()).size(), 2U);  // the folder, and what was in it
}

TEST_F(InspectTest, ALiveDirectoryIsInspectedOnlyWhereAsked) {
  test::ToyEngine engine(options(kWithIndex), layout());
  const test::Tokens prompt = test::tokens_from(100, 9 * 16);
  engine.serve(prompt);
  const Said said = run();
  EXPECT_EQ(said.status, kCannotInspect);
  EXPECT_THAT(said.err, AllOf(HasSubstr("in use: process " + std::to_string(::getpid())),
                              HasSubstr("--live")));

  const json report = look(kClean, true, true);
  EXPECT_TRUE(report["lock"]["in_use"]);
  EXPECT_EQ(report["records"]["good"], 9);
  EXPECT_FALSE(report["index"]["read"]);
  EXPECT_THAT(run({.path = {}, .live = true}).out, HasSubstr("figures may be moving"));

  engine.drop({kHbm0, kDram0});
  EXPECT_EQ(engine.serve(prompt).cached_by_place[kNvme0], 8 * 16U) << "the cache was disturbed";
}

// ---- Empty --------------------------------------------------------------------------------------

TEST_F(InspectTest, ACacheWithoutBlocksIsClean) {
  { test::ToyEngine engine(options(kWithoutIndex), layout()); }
  const json report = look(kClean, true);
  EXPECT_EQ(report["records"]["good"], 0);
  EXPECT_EQ(report["payloads"]["bytes"], 0);
  EXPECT_TRUE(report["models"].empty());
  EXPECT_THAT(run({.path = {}, .list = true, .json = true}).out, "");
  EXPECT_THAT(run().out, AllOf(HasSubstr("clean"), Not(HasSubstr("nan"))));
}

// A process that ended between the lock and the manifest.
TEST_F(InspectTest, ADirectoryThatWasNeverWrittenIsClean) {
  std::filesystem::create_directory(cache_);
  std::ofstream(cache_ + "/terrace.lock") << "process 1\n";
  EXPECT_TRUE(look(kClean)["damage"].empty());
  EXPECT_THAT(run().out, HasSubstr("nothing was ever written here"));
}

}  // namespace
}  // namespace terrace::tune
