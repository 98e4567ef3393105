// What every BlockDevice must do: io_uring and plain file, direct and through the page cache.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "io/device_fixture.hpp"

namespace terrace::test {
namespace {

using namespace std::chrono_literals;
using Kind = IoRequest::Kind;

constexpr std::uint32_t depth = 32;
constexpr std::uint64_t blocks = 256;

struct DeviceCase {
  const char* name;
  bool io_uring;
  bool direct;
};

class BlockDeviceContract : public testing::TestWithParam<DeviceCase> {
 protected:
  BlockDeviceOptions options() const {
    BlockDeviceOptions options;
    options.path = folder_.file();
    options.size_bytes = blocks * block_bytes;
    options.queue_depth_max = depth;
    options.buffers = arena_.bytes();
    options.io_uring = GetParam().io_uring;
    options.direct = GetParam().direct;
    return options;
  }

  std::unique_ptr<BlockDevice> open() const { return open_block_device(options()).value(); }

  void SetUp() override {
    const auto device = open();
    const BlockDeviceFacts facts = device->facts();
    if (facts.io_uring != GetParam().io_uring)
      GTEST_SKIP() << "no io_uring in this build or process";
    if (facts.direct != GetParam().direct) GTEST_SKIP() << "no direct I/O on this file system";
  }

  TemporaryFolder folder_;
  Arena arena_{depth};
};

TEST_P(BlockDeviceContract, SaysWhatItIs) {
  const auto device = open();
  EXPECT_EQ(device->size_bytes(), blocks * block_bytes);
  EXPECT_EQ(device->alignment(), 4096u);
  EXPECT_EQ(device->in_flight(), 0u);
  EXPECT_EQ(device->wait_fd() >= 0, GetParam().io_uring);
}

// Writes and reads of random blocks in random order, with the queue full all the time, against a
// model of the versions.
TEST_P(BlockDeviceContract, BlocksComeBackAsTheyWereWritten) {
  struct Transfer {
    Kind kind;
    std::uint64_t number;
    std::uint64_t version;
  };
  const auto device = open();
  std::mt19937_64 random(7);
  std::vector<std::uint64_t> versions(blocks, 0);  // 0: never written
  std::vector<bool> taken(blocks, false);
  std::vector<std::size_t> free_slots;
  for (std::size_t slot = 0; slot < depth; ++slot) free_slots.push_back(slot);
  std::map<std::uint64_t, Transfer> flying;  // by slot, which is the user_data
  std::vector<IoResult> results(depth);
  std::size_t reads = 0;
  std::size_t finished = 0;
  while (finished < 3000) {
    std::vector<IoRequest> batch;
    while (!free_slots.empty()) {
      const std::uint64_t number = random() % blocks;
      if (taken[number]) continue;
      const std::size_t slot = free_slots.back();
      free_slots.pop_back();
      taken[number] = true;
      const bool write = versions[number] == 0 || random() % 2 == 0;
      if (write) fill_block(arena_.block(slot), number, ++versions[number]);
      flying[slot] = {write ? Kind::write : Kind::read, number, versions[number]};
      batch.push_back(request(flying[slot].kind, number, arena_.block(slot), slot));
    }
    ASSERT_EQ(device->submit(batch), batch.size());
    ASSERT_EQ(device->in_flight(), depth);
    const std::size_t count = device->reap(results);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(flying.count(results[i].user_data), 1u) << "a result nobody waits for";
      const Transfer transfer = flying[results[i].user_data];
      flying.erase(results[i].user_data);
      ASSERT_EQ(results[i].os_error, 0);
      if (transfer.kind == Kind::read) {
        ++reads;
        ASSERT_TRUE(
            is_block(arena_.block(results[i].user_data), transfer.number, transfer.version));
      }
      taken[transfer.number] = false;
      free_slots.push_back(results[i].user_data);
      ++finished;
    }
  }
  reap_all(*device);
  EXPECT_GT(reads, 500u);
}

// A run over blocks that lie together on the device and apart in memory.
TEST_P(BlockDeviceContract, ARunIsOneRequest) {
  const auto device = open();
  const std::size_t order[] = {9, 3, 4, 5, 20, 0, 1};
  const auto run = [&](Kind kind, std::size_t shift, std::vector<IoPiece>& more) {
    for (const std::size_t at : std::span(order).subspan(1))
      more.push_back({arena_.block((at + shift) % depth), block_bytes});
    IoRequest one = request(kind, 40, arena_.block((order[0] + shift) % depth), 1);
    one.more = more;
    return one;
  };
  for (std::size_t i = 0; i < std::size(order); ++i) fill_block(arena_.block(order[i]), 40 + i, 1);
  {
    std::vector<IoPiece> more;
    const IoRequest write = run(Kind::write, 0, more);
    ASSERT_EQ(device->submit({&write, 1}), 1u);
    std::ranges::fill(more, IoPiece{});  // borrowed during submit() only
  }
  EXPECT_EQ(reap_all(*device), (std::map<std::uint64_t, int>{{1, 0}}));
  std::vector<IoPiece> more;
  EXPECT_EQ(transfer_one(*device, run(Kind::read, 7, more)), 0);
  for (std::size_t i = 0; i < std::size(order); ++i)
    EXPECT_TRUE(is_block(arena_.block((order[i] + 7) % depth), 40 + i, 1)) << i;
  // Each block alone is where it belongs.
  EXPECT_EQ(transfer_one(*device, request(Kind::read, 44, arena_.block(31), 2)), 0);
  EXPECT_TRUE(is_block(arena_.block(31), 44, 1));
}

TEST_P(BlockDeviceContract, ASyncIsARequest) {
  const auto device = open();
  IoRequest sync;
  sync.kind = Kind::sync;
  sync.user_data = 5;
  EXPECT_EQ(transfer_one(*device, sync), 0);
  fill_block(arena_.block(0), 3, 1);
  const std::vector<IoRequest> both{request(Kind::write, 3, arena_.block(0), 1), sync};
  ASSERT_EQ(device->submit(both), 2u);
  EXPECT_EQ(reap_all(*device), (std::map<std::uint64_t, int>{{1, 0}, {5, 0}}));
}

TEST_P(BlockDeviceContract, ARunWithABadPieceIsRefused) {
  const auto device = open();
  const auto outcome = [&](std::uint64_t number, IoPiece piece) {
    IoRequest one = request(Kind::read, number, arena_.block(0), 1);
    const std::vector<IoPiece> more(1, piece);
    one.more = more;
    return transfer_one(*device, one);
  };
  EXPECT_EQ(outcome(3, {arena_.block(1), block_bytes}), 0);
  EXPECT_EQ(outcome(3, {arena_.block(1) + 512, 4096}), EINVAL);
  EXPECT_EQ(outcome(3, {arena_.block(1), 100}), EINVAL);
  EXPECT_EQ(outcome(3, {nullptr, 4096}), EINVAL);
  EXPECT_EQ(outcome(3, {}), EINVAL);
  EXPECT_EQ(outcome(blocks - 1, {arena_.block(1), block_bytes}), EINVAL)
      << "ends behind the device";
  IoRequest one = request(Kind::read, 0, arena_.block(0), 1);
  const std::vector<IoPiece> many(kIoPiecesMax, {arena_.block(1), 4096});
  one.more = many;
  EXPECT_EQ(transfer_one(*device, one), EINVAL);
  one.more = std::span(many).first(kIoPiecesMax - 1);
  EXPECT_EQ(transfer_one(*device, one), 0);
}

TEST_P(BlockDeviceContract, AFullQueueTakesAPrefix) {
  const auto device = open();
  for (int round = 0; round < 3; ++round) {
    std::vector<IoRequest> batch;
    for (std::size_t i = 0; i < depth + 5; ++i) {
      fill_block(arena_.block(i % depth), i, 1);
      batch.push_back(request(Kind::write, i, arena_.block(i % depth), i));
    }
    const std::span<const IoRequest> all(batch);
    EXPECT_EQ(device->submit(all.first(depth - 1)), depth - 1);
    EXPECT_EQ(device->submit(all.subspan(depth - 1)), 1u);
    EXPECT_EQ(device->submit(all.last(5)), 0u);
    EXPECT_EQ(device->in_flight(), depth);
    const auto errors = reap_all(*device);
    EXPECT_EQ(errors.size(), depth);
    for (const auto& [user_data, error] : errors) {
      EXPECT_LT(user_data, depth);
      EXPECT_EQ(error, 0);
    }
  }
}

TEST_P(BlockDeviceContract, ReapTakesNoMoreThanItHasRoomFor) {
  const auto device = open();
  std::vector<IoRequest> batch;
  for (std::size_t i = 0; i < 8; ++i) batch.push_back(request(Kind::write, i, arena_.block(i), i));
  ASSERT_EQ(device->submit(batch), 8u);
  EXPECT_EQ(device->reap({}), 0u);
  IoResult one;
  std::size_t count = 0;
  while (device->in_flight() > 0) count += device->reap({&one, 1});
  EXPECT_EQ(count, 8u);
}

TEST_P(BlockDeviceContract, DataOutsideTheRegisteredBuffersWorks) {
  const auto device = open();
  const Arena other(2);
  EXPECT_TRUE(round_trip(*device, other, 3));
}

TEST_P(BlockDeviceContract, TheFileHasExactlyItsSize) {
  open();
  EXPECT_EQ(file_bytes(folder_.file()), blocks * block_bytes);
  // At least: file systems add metadata.
  EXPECT_GE(allocated_bytes(folder_.file()), blocks * block_bytes);
  EXPECT_LE(allocated_bytes(folder_.file()), blocks * block_bytes + MiB);
}

TEST_P(BlockDeviceContract, ReopeningKeepsTheContent) {
  fill_block(arena_.block(0), 11, 4);
  {
    const auto device = open();
    ASSERT_EQ(transfer_one(*device, request(Kind::write, 11, arena_.block(0), 1)), 0);
    ASSERT_TRUE(device->sync());
  }
  const auto device = open();
  ASSERT_EQ(transfer_one(*device, request(Kind::read, 11, arena_.block(1), 1)), 0);
  EXPECT_TRUE(is_block(arena_.block(1), 11, 4));
}

TEST_P(BlockDeviceContract, AnotherSizeCutsOrExtendsTheFile) {
  fill_block(arena_.block(0), 3, 9);
  ASSERT_EQ(transfer_one(*open(), request(Kind::write, 3, arena_.block(0), 1)), 0);
  for (const std::uint64_t count : {std::uint64_t{8}, std::uint64_t{512}}) {
    BlockDeviceOptions other = options();
    other.size_bytes = count * block_bytes;
    const auto device = open_block_device(other).value();
    EXPECT_EQ(file_bytes(folder_.file()), count * block_bytes);
    EXPECT_GE(allocated_bytes(folder_.file()), count * block_bytes);
    ASSERT_EQ(transfer_one(*device, request(Kind::read, 3, arena_.block(1), 1)), 0);
    EXPECT_TRUE(is_block(arena_.block(1), 3, 9));
  }
}

TEST_P(BlockDeviceContract, ASparseFileIsFilled) {
  ASSERT_EQ(::truncate(folder_.file().c_str(), 0), 0);
  ASSERT_EQ(::truncate(folder_.file().c_str(), blocks * block_bytes), 0);
  ASSERT_LT(allocated_bytes(folder_.file()), blocks * block_bytes);
  open();
  EXPECT_GE(allocated_bytes(folder_.file()), blocks * block_bytes);
}

TEST_P(BlockDeviceContract, PreallocationTellsItsProgress) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> calls;
  BlockDeviceOptions told = options();
  told.progress = [&](std::uint64_t done, std::uint64_t total) { calls.emplace_back(done, total); };
  ASSERT_TRUE(open_block_device(told));
  EXPECT_TRUE(calls.empty()) << "the file is as it should be already";
  ASSERT_EQ(::truncate(folder_.file().c_str(), 0), 0);
  ASSERT_TRUE(open_block_device(told));
  ASSERT_GE(calls.size(), 2u);
  EXPECT_EQ(calls.front(), std::pair(std::uint64_t{0}, told.size_bytes));
  EXPECT_EQ(calls.back(), std::pair(told.size_bytes, told.size_bytes));
  EXPECT_TRUE(std::is_sorted(calls.begin(), calls.end()));
}

// I13: the file shrinks behind our back; a read must not pass for one that worked.
TEST_P(BlockDeviceContract, AReadBeyondATruncatedFileIsAnError) {
  const auto device = open();
  const std::uint64_t end = 10 * block_bytes + 8192 + 100;  // inside block 10, and inside a sector
  ASSERT_EQ(::truncate(folder_.file().c_str(), static_cast<off_t>(end)), 0);
  EXPECT_EQ(transfer_one(*device, request(Kind::read, 9, arena_.block(0), 1)), 0);
  EXPECT_NE(transfer_one(*device, request(Kind::read, 10, arena_.block(0), 1)), 0);
  EXPECT_EQ(transfer_one(*device, request(Kind::read, 11, arena_.block(0), 1)), EIO);
}

TEST_P(BlockDeviceContract, BadRequestsFailAloneAndTouchNothing) {
  const auto device = open();
  std::byte* data = arena_.block(1);
  const std::uint64_t end = blocks * block_bytes;
  const std::vector<IoRequest> batch{
      {Kind::write, 100, data, 4096, 0},
      {Kind::write, 0, data + 8, 4096, 1},
      {Kind::write, 0, data, 100, 2},
      {Kind::write, 0, data, 0, 3},
      {Kind::write, 0, nullptr, 4096, 4},
      {Kind::write, end, data, 4096, 5},
      {Kind::write, end - 4096, data, 8192, 6},
      {Kind::write, ~std::uint64_t{4095}, data, 8192, 7},
      {Kind::read, end, data, 4096, 8},
      {Kind::read, end - 4096, data, 4096, 9},  // the only good one
  };
  ASSERT_EQ(device->submit(batch), batch.size());
  const auto errors = reap_all(*device);
  ASSERT_EQ(errors.size(), batch.size());
  for (const auto& [user_data, error] : errors) EXPECT_EQ(error, user_data == 9 ? 0 : EINVAL);
  EXPECT_EQ(file_bytes(folder_.file()), end);
}

TEST_P(BlockDeviceContract, AnotherThreadMayReapAndTheSubmitterMayBeGone) {
  const auto device = open();
  std::thread([&] {
    std::vector<IoRequest> batch;
    for (std::size_t i = 0; i < depth; ++i) {
      fill_block(arena_.block(i), i, 2);
      batch.push_back(request(Kind::write, i, arena_.block(i), i));
    }
    EXPECT_EQ(device->submit(batch), depth);
  }).join();
  for (const auto& [user_data, error] : reap_all(*device)) EXPECT_EQ(error, 0) << user_data;
  for (std::size_t i = 0; i < depth; ++i) {
    ASSERT_EQ(transfer_one(*device, request(Kind::read, i, arena_.block(0), i)), 0);
    EXPECT_TRUE(is_block(arena_.block(0), i, 2));
  }
}

TEST_P(BlockDeviceContract, TheDescriptorTellsOfResults) {
  const auto device = open();
  if (device->wait_fd() < 0) GTEST_SKIP() << "this device is driven by reap() alone";
  const IoRequest bad{Kind::read, 100, arena_.block(0), 4096, 1};  // has a result to wait for, too
  for (const IoRequest& one : {request(Kind::read, 5, arena_.block(0), 1), bad}) {
    pollfd wait{device->wait_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&wait, 1, 0), 0) << "readable without a reason";
    ASSERT_EQ(device->submit({&one, 1}), 1u);
    ASSERT_EQ(::poll(&wait, 1, 10000), 1);
    IoResult result;
    EXPECT_EQ(device->reap({&result, 1}), 1u);
  }
}

// What else is waited for takes no result's place, and never becomes one.
TEST_P(BlockDeviceContract, WaitingEndsWithAResultOrADescriptor) {
  auto device = open();
  const int other = ::eventfd(0, EFD_NONBLOCK);
  const int fds[] = {-1, other};
  EXPECT_FALSE(device->wait(fds, 10s)) << "nothing in flight: the caller waits";
  const auto start = [&](std::uint64_t number) {
    const IoRequest one = request(Kind::read, number, arena_.block(0), number);
    ASSERT_EQ(device->submit({&one, 1}), 1u);
  };
  for (std::uint64_t number = 0; number < 50; ++number) {
    const bool readable = number % 2 == 1;
    if (readable) ::eventfd_write(other, 1);
    start(number);
    std::size_t count = 0;
    IoResult results[2];
    while (count == 0) {
      if (!device->wait(fds, 10s)) std::this_thread::yield();
      count = device->reap(results);
    }
    ASSERT_EQ(count, 1u);
    EXPECT_EQ(results[0].user_data, number);
    EXPECT_EQ(results[0].os_error, 0);
    eventfd_t wakes = 0;
    if (readable) ::eventfd_read(other, &wakes);
  }
  start(1);
  (void)device->wait(fds, 0s);
  device.reset();  // with a request and a descriptor in its hands
  ::close(other);
}

TEST_P(BlockDeviceContract, ADescriptorEndsWaitsWhileARequestIsUnderWay) {
  SlowDevice slow(options());
  if (!slow.is_slow()) GTEST_SKIP() << "a request is over when submit() or reap() returns";
  const int other = ::eventfd(1, EFD_NONBLOCK);
  int ended_by_it = 0;  // again and again: it stays readable
  for (int attempt = 0; attempt < 50 && ended_by_it < 3; ++attempt) {
    slow.start();
    EXPECT_TRUE((*slow).wait(std::span(&other, 1), 10s));
    ended_by_it += slow.finish();
  }
  EXPECT_EQ(ended_by_it, 3);
  ::close(other);
}

// I8: memory of a request is the device's until its result, or until the device is gone; not a
// moment longer. The transfers are large, so that the kernel is still at work when the device goes,
// and every page is marked at once.
TEST_P(BlockDeviceContract, I8ADroppedDeviceWritesToNoBufferAnyMore) {
  constexpr std::size_t bytes = MiB;
  constexpr std::size_t count = 16;
  const Arena memory(count * bytes / block_bytes);
  std::ranges::fill(memory.bytes(), std::byte{0x11});
  std::vector<IoRequest> batch;
  for (std::size_t i = 0; i < count; ++i) {
    batch.push_back({Kind::write, i * bytes, memory.bytes().data() + i * bytes, bytes, i});
  }
  auto device = open();
  ASSERT_EQ(device->submit(batch), count);
  reap_all(*device);
  for (IoRequest& one : batch) one.kind = Kind::read;
  for (int round = 0; round < 5; ++round) {
    if (device == nullptr) device = open();
    ASSERT_EQ(device->submit(batch), count);
    device.reset();
    for (std::size_t at = 0; at < count * bytes; at += 4096) memory.bytes()[at] = std::byte{0xa5};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (std::size_t at = 0; at < count * bytes; at += 4096) {
      ASSERT_EQ(memory.bytes()[at], std::byte{0xa5}) << "written after the device was gone";
    }
  }
}

TEST_P(BlockDeviceContract, ChildrenDoNotInheritTheFile) {
  const auto device = open();
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) != folder_.file()) continue;
    ++found;
    EXPECT_NE(::fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(found, 1);
}

INSTANTIATE_TEST_SUITE_P(All, BlockDeviceContract,
                         testing::Values(DeviceCase{"UringDirect", true, true},
                                         DeviceCase{"UringBuffered", true, false},
                                         DeviceCase{"FileDirect", false, true},
                                         DeviceCase{"FileBuffered", false, false}),
                         [](const auto& param) { return std::string(param.param.name); });

// ---- Opening ----

Error open_error(const BlockDeviceOptions& options) {
  const auto opened = open_block_device(options);
  EXPECT_FALSE(opened);
  return opened ? Error{} : opened.error();
}

TEST(OpenBlockDevice, BadOptionsNameTheOption) {
  const TemporaryFolder folder;
  BlockDeviceOptions good;
  good.path = folder.file();
  good.size_bytes = MiB;
  const auto expect = [&](auto change, const char* name) {
    BlockDeviceOptions bad = good;
    change(bad);
    const Error error = open_error(bad);
    EXPECT_EQ(error.code, Code::invalid_argument) << name;
    EXPECT_NE(std::string(error.message).find(name), std::string::npos) << error.message;
  };
  expect([](auto& o) { o.path = ""; }, "path");
  expect([](auto& o) { o.size_bytes = 0; }, "size_bytes");
  expect([](auto& o) { o.size_bytes = 4097; }, "size_bytes");
  expect([](auto& o) { o.size_bytes = ~std::uint64_t{4095}; }, "size_bytes");
  expect([](auto& o) { o.queue_depth_max = 0; }, "queue_depth_max");
  expect([](auto& o) { o.queue_depth_max = 5000; }, "queue_depth_max");
  EXPECT_FALSE(std::filesystem::exists(folder.file()));
}

TEST(OpenBlockDevice, PathsThatAreNoFilesAreErrors) {
  const TemporaryFolder folder;
  BlockDeviceOptions options;
  options.size_bytes = MiB;
  options.path = folder.path() / "missing" / "file";
  EXPECT_EQ(open_error(options).os_error, ENOENT);
  options.path = folder.path();
  EXPECT_EQ(open_error(options).os_error, EISDIR);
  options.path = "/dev/null";
  EXPECT_EQ(open_error(options).code, Code::invalid_argument);
}

}  // namespace
}  // namespace terrace::test
