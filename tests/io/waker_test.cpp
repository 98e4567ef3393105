// The one wait of the pump: for a device, a wake, or time.
#include "io/waker.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "io/device_fixture.hpp"

namespace terrace::test {
namespace {

using namespace std::chrono_literals;
using internal::Waker;
using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kDepth = 8;

class WakerTest : public testing::Test {
 protected:
  WakerTest() {
    EXPECT_TRUE(waker_.open());
    for (std::unique_ptr<BlockDevice>& device : devices_) {
      BlockDeviceOptions options;
      options.path = folder_.file() + std::to_string(&device - devices_.data());
      options.size_bytes = kDepth * block_bytes;
      options.queue_depth_max = kDepth;
      options.buffers = arena_.bytes();
      device = open_block_device(options).value();
      pointers_.push_back(device.get());
    }
  }

  // Whether a wait lasts as long as it may: nothing is left that could end it.
  bool sleeps() {
    const auto begin = SteadyClock::now();
    waker_.wait(pointers_, 30ms);
    return SteadyClock::now() - begin >= 30ms;
  }
  // One wait may end early.
  bool sleeps_soon() { return sleeps() || sleeps() || sleeps(); }

  TemporaryFolder folder_;
  Arena arena_{2 * kDepth};
  std::array<std::unique_ptr<BlockDevice>, 2> devices_;
  std::vector<BlockDevice*> pointers_;
  Waker waker_;
};

TEST_F(WakerTest, AWakeEndsOneWaitWheneverItComes) {
  EXPECT_TRUE(sleeps());
  waker_.wake();
  waker_.wait(pointers_, 1h);
  EXPECT_TRUE(sleeps_soon());
  std::jthread later([this] {
    std::this_thread::sleep_for(20ms);
    waker_.wake();
  });
  waker_.wait(pointers_, 1h);
  later.join();
  EXPECT_TRUE(sleeps_soon());
}

TEST_F(WakerTest, EveryDeviceEndsAWait) {
  for (std::size_t i = 0; i < 100; ++i) {
    BlockDevice& device = *devices_[i / 2 % 2];
    if (device.wait_fd() < 0) GTEST_SKIP() << "this device is driven by reap() alone";
    const IoRequest one = request(IoRequest::Kind::read, 0, arena_.block(i % kDepth), i);
    ASSERT_EQ(device.submit({&one, 1}), 1u);
    if (i % 3 == 0) waker_.wake();
    IoResult result;
    while (device.reap({&result, 1}) == 0) waker_.wait(pointers_, 1h);
    EXPECT_EQ(result.user_data, i);
    for (BlockDevice* each : pointers_) EXPECT_EQ(each->reap({&result, 1}), 0u);
  }
  EXPECT_TRUE(sleeps_soon()) << "what has ended a wait must not end the next one";
}

// The device that waits itself looks for everything else.
class BusyWakerTest : public WakerTest {
 protected:
  // `event` happens while the first device is busy, and ends the wait.
  template <class Event>
  void expect_it_ends_waits(const Event& event) {
    BlockDeviceOptions options;
    options.path = folder_.file() + "slow";
    options.queue_depth_max = kDepth;
    SlowDevice slow(options);
    if (!slow.is_slow()) GTEST_SKIP() << "this device is driven by reap() alone";
    BlockDevice* const devices[] = {&*slow, pointers_[1]};
    int ended_by_it = 0;
    for (int attempt = 0; attempt < 50 && ended_by_it < 3; ++attempt) {
      slow.start();
      event();
      waker_.wait(devices, 1h);
      ended_by_it += slow.finish();
      reap_all(*pointers_[1]);
    }
    EXPECT_EQ(ended_by_it, 3);
  }
};

TEST_F(BusyWakerTest, AWakeEndsAWait) {
  expect_it_ends_waits([this] { waker_.wake(); });
}

TEST_F(BusyWakerTest, AnotherDeviceEndsAWait) {
  const IoRequest bad{IoRequest::Kind::read, 100, arena_.block(0), 4096, 1};  // answered at once
  expect_it_ends_waits([&] { ASSERT_EQ(pointers_[1]->submit({&bad, 1}), 1u); });
}

}  // namespace
}  // namespace terrace::test
