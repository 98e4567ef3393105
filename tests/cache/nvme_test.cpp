// The NVMe tier under a real cache: runs, several drives, drives that fail, write budget, scrub.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "cache/harness.hpp"
#include "cache/test_device.hpp"
#include "support/damage.hpp"
#include "support/test_clock.hpp"

namespace terrace::test {
namespace {

constexpr std::uint64_t kRecordBytes = 8 * KiB;  // of the toy layout

class NvmeTest : public testing::Test {
 protected:
  Options options(std::size_t drives = 1, std::uint64_t bytes_each = 4 * MiB,
                  std::uint32_t dram_blocks = 48) {
    Options options = toy_options(48, dram_blocks);
    for (std::size_t i = 0; i < drives; ++i)
      options.nvme_paths.push_back(folder_ / ("drive" + std::to_string(i)).c_str());
    options.nvme_bytes = drives * bytes_each;
    options.block_device = control_.opener();
    options.clock = clock_;
    return options;
  }

  static const PlaceStats& nvme(const Stats& stats) { return stats.places[kNvme0]; }

  // 40 blocks of 8 tokens, and the one token that is always computed.
  static Tokens prompt(std::uint32_t first = 1000) { return tokens_from(first, 321); }

  TemporaryFolder folder_;
  DeviceControl control_;
  std::shared_ptr<TestClock> clock_ = std::make_shared<TestClock>();
};

TEST_F(NvmeTest, ConsecutiveBlocksTravelAsOneRequest) {
  ToyEngine engine(options());
  engine.serve(prompt());
  EXPECT_EQ(nvme(engine.cache().stats()).used_blocks, 40u);
  EXPECT_LE(control_.writes, 5u);
  engine.drop({kHbm0, kDram0});
  EXPECT_EQ(engine.serve(prompt()).cached_by_place[kNvme0], 320u);
  EXPECT_LE(control_.reads, 5u);
}

TEST_F(NvmeTest, I12OneBadSectorOfARunCostsOneBlock) {
  ToyEngine engine(options());
  engine.serve(prompt());
  engine.drop({kHbm0, kDram0});
  const std::uint64_t bad = 20 * kRecordBytes + 4096;
  control_.verdict = [bad](const std::string&, const IoRequest& request) {
    const bool hit = request.offset <= bad && bad < request.offset + bytes_of(request);
    return hit && request.kind == IoRequest::Kind::read ? EIO : 0;
  };
  EXPECT_EQ(engine.serve(prompt()).cached_tokens, 160u) << "the 20 blocks before the bad one";
  EXPECT_EQ(nvme(engine.cache().stats()).io_errors, 1u);
  EXPECT_EQ(nvme(engine.cache().stats()).quarantined_blocks, 1u);
  // It was computed again and written elsewhere; the ones behind it were never lost.
  engine.drop({kHbm0, kDram0});
  EXPECT_EQ(engine.serve(prompt()).cached_by_place[kNvme0], 320u);
}

TEST_F(NvmeTest, SeveralDrivesShareTheBlocksAndAreWarmAfterARestart) {
  std::vector<std::uint64_t> bytes(3);
  control_.verdict = [&](const std::string& path, const IoRequest& request) {
    if (request.kind == IoRequest::Kind::write)
      bytes[static_cast<std::size_t>(path[path.find("drive") + 5] - '0')] += bytes_of(request);
    return 0;
  };
  {
    ToyEngine engine(options(3));
    for (std::uint32_t i = 0; i < 6; ++i) engine.serve(prompt(i * 1000));
    EXPECT_EQ(engine.cache().stats().nvme_drives, 3u);
    for (const std::uint64_t written : bytes) EXPECT_GE(written, 40 * kRecordBytes);
    ASSERT_TRUE(engine.cache().close());
  }
  ToyEngine engine(options(3));
  EXPECT_EQ(engine.cache().stats().recovered_blocks, 240u);
  for (std::uint32_t i = 0; i < 6; ++i)
    EXPECT_EQ(engine.serve(prompt(i * 1000)).cached_by_place[kNvme0], 320u);
}

TEST_F(NvmeTest, I21WhatWasWrittenIsSyncedWithinSeconds) {
  ToyEngine engine(options());
  engine.serve(prompt());
  EXPECT_EQ(control_.syncs, 0u);
  for (int i = 0; i < 7; ++i) {
    clock_->advance(1s);
    engine.cache().poll();
  }
  EXPECT_EQ(control_.syncs, 1u);
  for (int i = 0; i < 20; ++i) {
    clock_->advance(1s);
    engine.cache().poll(1ms);
  }
  EXPECT_EQ(control_.syncs, 1u) << "nothing was written since";
}

// A drive that was away, or is new, must not count its lives for itself.
TEST_F(NvmeTest, DrivesOfOneTierHaveOneLife) {
  const Options both = options(2);
  Options first_only = both;
  first_only.nvme_paths.pop_back();
  for (int i = 0; i < 3; ++i) ToyEngine engine(first_only);
  const auto life = [](const std::string& path) {
    std::ifstream manifest(path + "/terrace.manifest");
    std::string word;
    std::uint32_t number = 0;
    while (manifest >> word && word != "life") {
    }
    manifest >> number;
    return number;
  };
  EXPECT_EQ(life(both.nvme_paths[0]), 3u);
  { ToyEngine engine(both); }
  EXPECT_EQ(life(both.nvme_paths[0]), 4u);
  EXPECT_EQ(life(both.nvme_paths[1]), 4u);
}

TEST_F(NvmeTest, I24AManifestThatCannotBeWrittenAgainIsNoReasonNotToStart) {
  Options options = this->options();
  std::string log;
  options.log = [&log](LogLevel, std::string_view line) { log += line; };
  {
    ToyEngine engine(options);
    engine.serve(prompt());
    EXPECT_TRUE(engine.cache().close());
  }
  // Nothing can be written under the name of the draft.
  std::filesystem::create_directories(options.nvme_paths.front() + "/terrace.manifest.tmp/taken");
  for (int start = 0; start < 2; ++start) {
    log.clear();
    ToyEngine engine(options);
    EXPECT_NE(log.find("manifest of the NVMe directory cannot be written"), std::string::npos)
        << log;
    EXPECT_EQ(engine.serve(prompt()).cached_by_place[kNvme0], 320u);
    EXPECT_EQ(engine.serve(prompt(9000 + start * 1000)).cached_tokens, 0u);
    EXPECT_TRUE(engine.cache().close());
  }
  ToyEngine engine(this->options());
  EXPECT_EQ(engine.cache().stats().recovered_blocks, 120u);
}

TEST_F(NvmeTest, OneDirectoryTwiceIsRefused) {
  Options twice = options();
  twice.nvme_paths.push_back(twice.nvme_paths.front());
  twice.nvme_bytes *= 2;
  const auto cache = Cache::open(twice, toy_layout());
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().code, Code::invalid_argument);
}

TEST_F(NvmeTest, ADriveThatFailsLeavesTheOthersInService) {
  ToyEngine engine(options(2));
  for (std::uint32_t i = 0; i < 4; ++i) engine.serve(prompt(i * 1000));
  const std::uint32_t before = nvme(engine.cache().stats()).used_blocks;
  EXPECT_EQ(before, 160u);
  control_.verdict = [](const std::string& path, const IoRequest&) {
    return path.find("drive1") != std::string::npos ? EIO : 0;
  };
  for (int round = 0; round < 12; ++round) {
    engine.drop({kHbm0, kDram0});
    for (std::uint32_t i = 0; i < 4; ++i) engine.serve(prompt(i * 1000));
  }
  const Stats stats = engine.cache().stats();
  EXPECT_EQ(stats.nvme_drives_failed, 1u);
  EXPECT_EQ(nvme(stats).quarantined_blocks * 2, nvme(stats).capacity_blocks);
  // All that is asked for has moved to the drive that works.
  engine.drop({kHbm0, kDram0});
  for (std::uint32_t i = 0; i < 4; ++i)
    EXPECT_EQ(engine.serve(prompt(i * 1000)).cached_by_place[kNvme0], 320u);
}

TEST_F(NvmeTest, WithoutAnyDriveTheCacheGoesOn) {
  ToyEngine engine(options(2));
  control_.verdict = [](const std::string&, const IoRequest&) { return EIO; };
  for (std::uint32_t i = 0; i < 20; ++i) engine.serve(prompt(i * 1000));
  EXPECT_EQ(engine.cache().stats().nvme_drives_failed, 2u);
  EXPECT_GT(engine.cache().stats().nvme_shed_blocks, 0u);
  EXPECT_EQ(engine.cache().stats().spill_backlog_blocks, 0u);
  EXPECT_EQ(engine.serve(prompt(19 * 1000)).cached_by_place[kHbm0], 320u);
}

TEST_F(NvmeTest, I24AFullFileSystemIsNoReasonToGiveUpADrive) {
  ToyEngine engine(options());
  engine.serve(prompt());
  control_.verdict = [](const std::string&, const IoRequest& request) {
    return request.kind == IoRequest::Kind::write ? ENOSPC : 0;
  };
  for (std::uint32_t i = 1; i < 5; ++i) engine.serve(prompt(i * 10000));
  EXPECT_EQ(engine.cache().stats().nvme_drives_failed, 0u);
  EXPECT_GT(nvme(engine.cache().stats()).io_errors, 0u);
  engine.drop({kHbm0, kDram0});
  EXPECT_EQ(engine.serve(prompt()).cached_by_place[kNvme0], 320u) << "reads go on";
}

// I18: a drive that does not answer costs its blocks, not the request.
TEST_F(NvmeTest, I18ADriveThatDoesNotAnswerHoldsNobodyUp) {
  ToyEngine engine(options());
  engine.serve(prompt());
  engine.drop({kHbm0, kDram0});
  control_.hang = true;
  FetchOp fetch;
  ASSERT_TRUE(engine.model().fetch(engine.model().match(prompt()).value(), fetch));
  for (int i = 0; i < 10; ++i) engine.cache().poll();
  EXPECT_FALSE(fetch.done());
  for (int i = 0; i < 40 && !fetch.done(); ++i) {
    clock_->advance(1s);
    engine.cache().poll();
  }
  ASSERT_TRUE(fetch.done());
  EXPECT_TRUE(fetch.take_lease().slots().empty());
  EXPECT_GT(nvme(engine.cache().stats()).io_errors, 0u);
  EXPECT_EQ(engine.cache().stats().nvme_unanswered_blocks, 40u);
  control_.hang = false;
  EXPECT_EQ(engine.serve(prompt()).cached_by_place[kNvme0], 0u) << "what was given up stays so";
  engine.wait_until_unpinned();  // the late answers
  EXPECT_EQ(engine.cache().stats().nvme_unanswered_blocks, 0u);
}

// Nobody polls for a while: what still waits for its turn then has not been refused an answer.
TEST_F(NvmeTest, I18APauseOfTheEngineIsNotTheDrivesFault) {
  Options options = this->options();
  options.io_queue_depth = 2;
  ToyEngine engine(options);
  constexpr std::uint32_t kChains = 12;
  const auto one_block = [](std::uint32_t chain) { return tokens_from(chain * 1000, 9); };
  for (std::uint32_t chain = 0; chain < kChains; ++chain) engine.serve(one_block(chain));
  engine.drop({kHbm0, kDram0});
  std::array<FetchOp, kChains> fetches;
  for (std::uint32_t chain = 0; chain < kChains; ++chain) {
    auto match = engine.model().match(one_block(chain));
    ASSERT_TRUE(engine.model().fetch(std::move(*match), fetches[chain]));
  }
  engine.cache().poll();
  clock_->advance(60s);
  for (const FetchOp& fetch : fetches) {
    while (!fetch.done()) engine.cache().poll();
    EXPECT_EQ(fetch.blocks_usable(), 1u);
  }
  EXPECT_EQ(nvme(engine.cache().stats()).io_errors, 0u);
  EXPECT_EQ(engine.cache().stats().nvme_drives_failed, 0u);
}

// I18: and one that answers others meanwhile, so that it stays in service, while what it does not answer
// holds all of DRAM.
TEST_F(NvmeTest, I18AReadThatNeverGetsRoomHoldsNobodyUp) {
  constexpr std::uint32_t kDramBlocks = 8;
  ToyEngine engine(options(1, 4 * MiB, kDramBlocks));
  const auto one_block = [](std::uint32_t chain) { return tokens_from(chain * 1000, 9); };
  for (std::uint32_t chain = 0; chain < 2 * kDramBlocks + 1; ++chain)
    engine.serve(one_block(chain));
  engine.drop({kHbm0, kDram0});
  // Returns: whether the fetch has ended within the time that an answer may take, and some.
  const auto ends = [&](std::uint32_t chain) {
    FetchOp fetch;
    EXPECT_TRUE(engine.model().fetch(engine.model().match(one_block(chain)).value(), fetch));
    for (int i = 0; i < 400 && !fetch.done(); ++i) {
      if (i % 10 == 9) clock_->advance(1s);
      engine.cache().poll();
    }
    return fetch.done();
  };
  for (std::uint32_t chain = 0; chain < kDramBlocks; ++chain) {
    control_.loses_reads = true;
    EXPECT_TRUE(ends(chain));
    control_.loses_reads = false;
    if (chain + 1 == kDramBlocks) break;
    EXPECT_EQ(engine.serve(one_block(kDramBlocks + chain)).cached_by_place[kNvme0], 8u);
    engine.drop({kHbm0, kDram0});
  }
  EXPECT_EQ(engine.cache().stats().nvme_drives_failed, 0u);
  EXPECT_TRUE(ends(2 * kDramBlocks)) << "a fetch that waits for room in DRAM";

  FetchOp fetch;
  ASSERT_TRUE(engine.model().fetch(*engine.model().match(one_block(2 * kDramBlocks)), fetch));
  engine.cache().poll();
  clock_->advance(60s);
  engine.cache().poll();
  EXPECT_FALSE(fetch.done()) << "nobody polled meanwhile: that is not the drive's fault";
  control_.answers_lost = true;
  while (!fetch.done()) engine.cache().poll();
  EXPECT_EQ(fetch.blocks_usable(), 1u);
  fetch = {};
  engine.wait_until_unpinned();
  engine.drop({kHbm0, kDram0});
  EXPECT_EQ(engine.serve(one_block(2 * kDramBlocks)).cached_by_place[kNvme0], 8u)
      << "it is still there";
}

TEST_F(NvmeTest, AWriteBudgetHoldsAndPrefersWhatIsAskedForAgain) {
  if (TERRACE_KEY_BITS < 128) GTEST_SKIP() << "keys are cut: all blocks share their counters";
  Options limited = options(1, 16 * MiB);
  limited.nvme_write_bytes_per_day = 24 * 100 * kRecordBytes;  // 100 records at once
  ToyEngine engine(limited);
  const auto written = [&] { return nvme(engine.cache().stats()).stored_blocks; };
  for (std::uint32_t i = 0; i < 20; ++i) engine.serve(prompt(i * 1000));
  // All comers, until the bucket is half empty; then only what shares its counters with others.
  EXPECT_GE(written(), 50u);
  EXPECT_LE(written(), 70u);
  EXPECT_GT(engine.cache().stats().nvme_shed_blocks, 0u);
  EXPECT_EQ(engine.cache().stats().spill_backlog_blocks, 0u);
  // A prompt that comes again gets in; newcomers do not.
  engine.serve(prompt(19 * 1000));
  EXPECT_GE(written(), 70u);
  const std::uint64_t before = written();
  engine.serve(prompt(50000));
  EXPECT_EQ(written(), before);
  for (int i = 0; i < 10; ++i) engine.serve(prompt(19 * 1000));
  EXPECT_LE(written(), 100u);
  EXPECT_LE(control_.bytes_written, 100 * kRecordBytes);
  // The bucket fills again with time.
  clock_->advance(std::chrono::hours(2));
  engine.serve(prompt(60000));
  EXPECT_GE(written(), before + 40);
}

TEST_F(NvmeTest, AWriteBudgetHoldsOverRestarts) {
  Options limited = options(1, 16 * MiB);
  limited.nvme_write_bytes_per_day = 24 * 100 * kRecordBytes;
  for (std::uint32_t life = 0; life < 5; ++life) {
    ToyEngine engine(limited);
    engine.serve(prompt(1 + life * 1000));
    EXPECT_TRUE(engine.cache().close());
  }
  EXPECT_EQ(control_.bytes_written, 40 * kRecordBytes)
      << "what the first life wrote, within its budget";
  ToyEngine engine(limited);
  clock_->advance(std::chrono::hours(2));
  engine.serve(prompt(90000));
  EXPECT_GT(control_.bytes_written, 40 * kRecordBytes);
}

// One piece of registered memory is the fastest request there is.
TEST_F(NvmeTest, ARunLiesInOnePieceOfDramHoweverOftenItsSlotsWereUsed) {
  std::map<IoRequest::Kind, std::pair<std::size_t, std::size_t>> joints;  // of so many
  control_.verdict = [&](const std::string&, const IoRequest& request) {
    auto& [touching, all] = joints[request.kind];
    const std::byte* end = request.data + request.bytes;
    for (const IoPiece& piece : request.more) {
      touching += piece.data == end;
      end = piece.data + piece.bytes;
    }
    all += request.more.size();
    return 0;
  };
  ToyEngine engine(options(1, 16 * MiB));
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < 10; ++i) engine.serve(prompt(1 + i * 1000));
  }
  for (const auto kind : {IoRequest::Kind::read, IoRequest::Kind::write}) {
    const auto [touching, all] = joints[kind];
    EXPECT_GT(all, 300u);
    EXPECT_GT(touching * 10, all * 9) << touching << " of " << all;
  }
}

TEST_F(NvmeTest, WhatWasNotAdmittedIsServedFromDram) {
  Options limited = options();
  limited.nvme_write_bytes_per_day = 1;
  ToyEngine engine(limited);
  engine.serve(prompt());
  EXPECT_EQ(control_.writes, 0u);
  engine.drop({kHbm0});
  EXPECT_EQ(engine.serve(prompt()).cached_by_place[kDram0], 320u);
}

TEST_F(NvmeTest, AScrubFindsDamageBeforeAnybodyAsks) {
  Options scrubbed = options();
  scrubbed.nvme_scrub_bytes_per_second = 100 * kRecordBytes;
  ToyEngine engine(scrubbed);
  engine.serve(prompt());
  engine.drop({kHbm0, kDram0});
  ASSERT_TRUE(flip_byte(folder_ / "drive0/blocks.dat", 30 * kRecordBytes + 4096 + 17));
  std::uint64_t milliseconds = 0;
  const auto is_found = [&] {
    const Stats stats = engine.cache().stats();
    return nvme(stats).corrupt_blocks > 0 && stats.scrubbed_blocks > 40;
  };
  for (; milliseconds < 1'000'000 && !is_found(); ++milliseconds) {
    clock_->advance(1ms);
    engine.cache().poll(100us);
  }
  const Stats stats = engine.cache().stats();
  EXPECT_GT(stats.scrubbed_blocks, 40u);
  EXPECT_LE(stats.scrubbed_blocks, milliseconds / 10 + 1) << "100 a second";
  EXPECT_EQ(nvme(stats).corrupt_blocks, 1u);
  EXPECT_EQ(nvme(stats).quarantined_blocks, 1u);
  EXPECT_EQ(stats.queries, 1u) << "scrubbing is nobody's request";
  EXPECT_LE(stats.places[kDram0].used_blocks, 1u) << "what was only looked at does not stay";
  EXPECT_EQ(engine.serve(prompt()).cached_tokens, 240u);
}

}  // namespace
}  // namespace terrace::test
