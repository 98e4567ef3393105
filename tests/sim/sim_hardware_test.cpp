// The simulated drive and index are what the cache is judged by, so they are judged first: without
// faults they keep the contract of the real ones, and a crash leaves what it must leave.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "io/device_fixture.hpp"
#include "sim/hardware.hpp"

namespace terrace::sim {
namespace {

using test::Arena;
using test::block_bytes;
using test::fill_block;
using test::is_block;
using test::reap_all;
using test::request;
using test::transfer_one;
using Kind = IoRequest::Kind;

constexpr std::uint64_t kBlocks = 64;
constexpr std::uint32_t kDepth = 16;

class SimHardware : public testing::Test {
 protected:
  std::unique_ptr<BlockDevice> open(std::uint64_t blocks = kBlocks) {
    BlockDeviceOptions options;
    options.path = folder_.file();
    options.size_bytes = blocks * block_bytes;
    options.queue_depth_max = kDepth;
    options.buffers = arena_.bytes();
    return hardware_.open_drive(options).value();
  }
  int write(BlockDevice& device, std::uint64_t number, std::uint64_t version) {
    fill_block(arena_.block(0), number, version);
    return transfer_one(device, request(Kind::write, number, arena_.block(0), 1));
  }
  bool holds(BlockDevice& device, std::uint64_t number, std::uint64_t version) {
    EXPECT_EQ(transfer_one(device, request(Kind::read, number, arena_.block(1), 2)), 0);
    return is_block(arena_.block(1), number, version);
  }
  void crash(Crash how) {
    world_.arm(0, [&] { hardware_.crash(how); });
    world_.step();
  }

  test::TemporaryFolder folder_;
  Arena arena_{2 * kDepth};
  World world_{Config{.seed = 7, .faults = 0}};
  Hardware hardware_{world_};
};

// ---- The contract of a block device.

TEST_F(SimHardware, BlocksComeBackAsTheyWereWritten) {
  const auto device = open();
  for (std::uint64_t version = 1; version <= 20; ++version) {
    std::vector<IoRequest> batch;
    for (std::size_t i = 0; i < kDepth; ++i) {
      fill_block(arena_.block(i), (i * 5 + version) % kBlocks, version);
      batch.push_back(request(Kind::write, (i * 5 + version) % kBlocks, arena_.block(i), i));
    }
    ASSERT_EQ(device->submit(batch), kDepth);
    for (const auto& [user_data, error] : reap_all(*device)) EXPECT_EQ(error, 0) << user_data;
    for (IoRequest& one : batch) one.kind = Kind::read;
    ASSERT_EQ(device->submit(batch), kDepth);
    EXPECT_EQ(reap_all(*device).size(), kDepth);
    for (std::size_t i = 0; i < kDepth; ++i)
      EXPECT_TRUE(is_block(arena_.block(i), (i * 5 + version) % kBlocks, version));
  }
  EXPECT_EQ(world_.failure(), "");
}

TEST_F(SimHardware, ARunIsOneRequest) {
  const auto device = open();
  const std::size_t order[] = {9, 3, 4, 20, 0};
  std::vector<IoPiece> more;
  for (const std::size_t at : std::span(order).subspan(1))
    more.push_back({arena_.block(at), block_bytes});
  for (std::size_t i = 0; i < std::size(order); ++i) fill_block(arena_.block(order[i]), 40 + i, 1);
  IoRequest write = request(Kind::write, 40, arena_.block(order[0]), 1);
  write.more = more;
  EXPECT_EQ(transfer_one(*device, write), 0);
  for (std::size_t i = 0; i < std::size(order); ++i) EXPECT_TRUE(holds(*device, 40 + i, 1)) << i;
}

TEST_F(SimHardware, AFullQueueTakesAPrefix) {
  const auto device = open();
  std::vector<IoRequest> batch;
  for (std::size_t i = 0; i < kDepth + 5; ++i)
    batch.push_back(request(Kind::write, i, arena_.block(i), i));
  EXPECT_EQ(device->submit(batch), kDepth);
  EXPECT_EQ(device->submit(std::span(batch).last(5)), 0U);
  EXPECT_EQ(device->in_flight(), kDepth);
  EXPECT_EQ(reap_all(*device).size(), kDepth);
}

TEST_F(SimHardware, BadRequestsFailAlone) {
  const auto device = open();
  std::byte* data = arena_.block(1);
  const std::uint64_t end = kBlocks * block_bytes;
  const std::vector<IoRequest> batch{
      {Kind::write, 100, data, 4096, 0},        {Kind::write, 0, data + 8, 4096, 1},
      {Kind::write, 0, data, 100, 2},           {Kind::write, 0, data, 0, 3},
      {Kind::write, 0, nullptr, 4096, 4},       {Kind::write, end, data, 4096, 5},
      {Kind::write, end - 4096, data, 8192, 6}, {Kind::read, end - 4096, data, 4096, 7},
  };
  ASSERT_EQ(device->submit(batch), batch.size());
  for (const auto& [user_data, error] : reap_all(*device))
    EXPECT_EQ(error, user_data == 7 ? 0 : EINVAL) << user_data;
}

TEST_F(SimHardware, ReopeningKeepsTheContentUnlessTheFileIsGone) {
  EXPECT_EQ(write(*open(), 11, 4), 0);
  EXPECT_TRUE(holds(*open(), 11, 4));
  std::filesystem::remove(folder_.file());
  EXPECT_FALSE(holds(*open(), 11, 4));
}

// ---- The witness.

TEST_F(SimHardware, SeesWhoTouchesABufferInFlight) {
  const auto device = open();
  const IoRequest read = request(Kind::read, 3, arena_.block(0), 1);
  ASSERT_EQ(device->submit({&read, 1}), 1U);
  arena_.block(0)[5000] = std::byte{1};
  reap_all(*device);
  EXPECT_NE(world_.failure(), "");
}

TEST_F(SimHardware, SeesTwoRequestsThatMeet) {
  const auto device = open();
  const IoRequest both[] = {request(Kind::write, 3, arena_.block(0), 1),
                            request(Kind::read, 3, arena_.block(1), 2)};
  ASSERT_EQ(device->submit(both), 2U);
  EXPECT_NE(world_.failure(), "");
}

TEST_F(SimHardware, LetsReadersShare) {
  const auto device = open();
  const IoRequest both[] = {request(Kind::read, 3, arena_.block(0), 1),
                            request(Kind::read, 3, arena_.block(1), 2)};
  ASSERT_EQ(device->submit(both), 2U);
  reap_all(*device);
  EXPECT_EQ(world_.failure(), "");
}

// ---- Crashes.

TEST_F(SimHardware, AKillLeavesWhatWasCompleted) {
  auto device = open();
  EXPECT_EQ(write(*device, 1, 1), 0);
  const IoRequest late = request(Kind::write, 2, arena_.block(2), 9);
  ASSERT_EQ(device->submit({&late, 1}), 1U);
  crash(Crash::kill);
  // The dead process writes on, to nowhere.
  reap_all(*device);
  EXPECT_NE(write(*device, 1, 2), 0);
  device.reset();
  world_.restart();
  EXPECT_TRUE(holds(*open(), 1, 1));
}

TEST_F(SimHardware, APowerCutLeavesWhatWasSynced) {
  auto device = open();
  EXPECT_EQ(write(*device, 1, 1), 0);
  ASSERT_TRUE(device->sync());
  std::uint64_t lost = 0;
  for (std::uint64_t number = 2; number < kBlocks; ++number)
    EXPECT_EQ(write(*device, number, 1), 0);
  crash(Crash::power_cut);
  device.reset();
  world_.restart();
  device = open();
  EXPECT_TRUE(holds(*device, 1, 1));
  for (std::uint64_t number = 2; number < kBlocks; ++number)
    lost += holds(*device, number, 1) ? 0 : 1;
  EXPECT_GT(lost, 0U) << "another seed: this one keeps everything";
}

TEST_F(SimHardware, AnIndexLosesItsTailOnly) {
  std::ignore = open();
  const std::string path = folder_.path() / "index";
  const std::byte header[8]{};
  auto index = hardware_.open_index(path);
  EXPECT_FALSE(index->usable());
  for (std::uint32_t slot = 0; slot < 10; ++slot) EXPECT_TRUE(index->put(slot, header));
  ASSERT_TRUE(index->mark_complete());
  for (std::uint32_t slot = 10; slot < 60; ++slot) EXPECT_TRUE(index->put(slot, header));
  crash(Crash::power_cut);
  index.reset();
  world_.restart();
  index = hardware_.open_index(path);
  ASSERT_TRUE(index->usable());
  std::uint32_t next = 0;
  ASSERT_TRUE(index->load([&](std::uint32_t slot, auto) { EXPECT_EQ(slot, next++); }));
  EXPECT_GE(next, 10U);
  EXPECT_LT(next, 60U);
}

}  // namespace
}  // namespace terrace::sim
