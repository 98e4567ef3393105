// What every CopyEngine must do, whatever its device. A test file instantiates the suite with its
// engines:
//
//   INSTANTIATE_TEST_SUITE_P(Host, CopyEngineContract, testing::Values(CopyEngineCase{"seed0",
//   &make}), case_name);
//
// Device memory is touched by copies only, so that the suite also holds where the host cannot read
// it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "terrace/io.hpp"
#include "terrace/units.hpp"

namespace terrace::test {

struct CopyEngineCase {
  std::string name;
  std::function<std::unique_ptr<CopyEngine>()> make;
};

inline std::string case_name(const testing::TestParamInfo<CopyEngineCase>& info) {
  return info.param.name;
}

class CopyEngineContract : public testing::TestWithParam<CopyEngineCase> {
 protected:
  void SetUp() override {
    engine_ = GetParam().make();
    if (engine_ == nullptr) GTEST_SKIP() << "no such device on this machine";
  }

  StreamId stream() { return engine_->create_stream().value(); }
  std::byte* device(std::size_t bytes) { return engine_->allocate(bytes).value(); }

  void enqueue(StreamId stream, void* to, const void* from, std::size_t bytes) {
    const Copy copy{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes};
    ASSERT_TRUE(engine_->copy(stream, {&copy, 1}));
  }

  // Lets all enqueued work end.
  void finish(StreamPoint point) {
    while (engine_->query(point) == PointState::pending) {
      if (!engine_->progress(64 * KiB)) std::this_thread::yield();
    }
    ASSERT_EQ(engine_->query(point), PointState::passed);
  }

  std::unique_ptr<CopyEngine> engine_;
};

TEST_P(CopyEngineContract, BytesGoToTheDeviceAndBack) {
  for (const std::size_t bytes : {1ul, 63ul, 4096ul, 100003ul, MiB + 5}) {
    std::vector<std::uint8_t> out(bytes);
    std::vector<std::uint8_t> back(bytes);
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::uint8_t>(i * 131 + i / 251);
    std::byte* memory = device(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0u);
    const StreamId s = stream();
    enqueue(s, memory, out.data(), bytes);
    enqueue(s, back.data(), memory, bytes);
    finish(engine_->record(s).value());
    EXPECT_EQ(out, back);
    engine_->destroy_stream(s);
    engine_->deallocate(memory);
  }
}

// A chain that only the enqueued order resolves: each copy reads what the one before has written.
TEST_P(CopyEngineContract, OneStreamKeepsOrder) {
  constexpr std::size_t steps = 200;
  std::byte* memory = device((steps + 1) * 4096);
  std::vector<std::byte> block(4096, std::byte{42});
  std::vector<std::byte> back(4096);
  const StreamId s = stream();
  enqueue(s, memory, block.data(), 4096);
  for (std::size_t i = 0; i < steps; ++i) {
    enqueue(s, memory + (i + 1) * 4096, memory + i * 4096, 4096);
  }
  enqueue(s, back.data(), memory + steps * 4096, 4096);
  finish(engine_->record(s).value());
  EXPECT_EQ(back, block);
}

TEST_P(CopyEngineContract, WaitOrdersTwoStreams) {
  std::byte* memory = device(64 * KiB);
  std::vector<std::byte> block(64 * KiB, std::byte{7});
  std::vector<std::byte> back(64 * KiB);
  const StreamId writer = stream();
  const StreamId reader = stream();
  enqueue(writer, memory, block.data(), block.size());
  ASSERT_TRUE(engine_->wait(reader, engine_->record(writer).value()));
  enqueue(reader, back.data(), memory, back.size());
  finish(engine_->record(reader).value());
  EXPECT_EQ(back, block);
}

// I6: what a point promises.
TEST_P(CopyEngineContract, APointPassesOnlyAfterItsWork) {
  constexpr std::size_t count = 32;
  std::array<std::uint32_t, count> out{};
  std::array<std::uint32_t, count> back{};
  std::byte* memory = device(4096);
  const StreamId s = stream();
  std::vector<StreamPoint> points;
  for (std::uint32_t i = 0; i < count; ++i) {
    out[i] = i + 1;
    enqueue(s, memory, &out[i], 4);
    enqueue(s, &back[i], memory, 4);
    points.push_back(engine_->record(s).value());
    if (i > 0) {
      EXPECT_GT(points[i].ticket, points[i - 1].ticket);
    }
  }
  for (std::size_t passed = 0; passed < count;) {
    if (engine_->query(points[passed]) == PointState::passed) {
      EXPECT_EQ(back[passed], passed + 1);
      ++passed;
    } else if (!engine_->progress(1)) {
      std::this_thread::yield();
    }
  }
}

TEST_P(CopyEngineContract, SynchronizeEndsWithThePointPassed) {
  std::byte* memory = device(2 * MiB);
  std::vector<std::uint8_t> block(2 * MiB, 9);
  std::vector<std::uint8_t> back(2 * MiB);
  const StreamId a = stream();
  const StreamId b = stream();
  const StreamId c = stream();
  enqueue(a, memory, block.data(), block.size());
  ASSERT_TRUE(engine_->wait(b, engine_->record(a).value()));
  ASSERT_TRUE(engine_->wait(c, engine_->record(b).value()));
  enqueue(c, back.data(), memory, back.size());
  EXPECT_EQ(engine_->synchronize(engine_->record(c).value()), PointState::passed);
  EXPECT_EQ(back, block);
}

TEST_P(CopyEngineContract, TicketZeroHasPassedEverywhere) {
  const StreamId s = stream();
  EXPECT_EQ(engine_->query({}), PointState::passed);
  EXPECT_EQ(engine_->query({s, 0}), PointState::passed);
  EXPECT_EQ(engine_->synchronize({s, 0}), PointState::passed);
  EXPECT_TRUE(engine_->wait(s, {}));
}

// A wait for a point that nobody recorded would order nothing, silently; so it is refused, and no
// cycle can be built.
TEST_P(CopyEngineContract, APointThatWasNeverRecordedIsAnError) {
  const StreamId a = stream();
  const StreamId b = stream();
  const StreamPoint first = engine_->record(a).value();
  for (const StreamPoint point :
       {StreamPoint{a, first.ticket + 1}, StreamPoint{b, 1}, StreamPoint{b + 100, 1}}) {
    EXPECT_EQ(engine_->query(point), PointState::failed);
    EXPECT_EQ(engine_->synchronize(point), PointState::failed);
    EXPECT_EQ(engine_->wait(a, point).error().code, Code::invalid_argument);
  }
  EXPECT_EQ(engine_->synchronize(engine_->record(a).value()), PointState::passed);
}

TEST_P(CopyEngineContract, UnknownStreamsAreRefused) {
  const StreamId s = stream();
  const StreamId unknown = s + 1000;
  EXPECT_EQ(engine_->copy(unknown, {}).error().code, Code::invalid_argument);
  EXPECT_EQ(engine_->record(unknown).error().code, Code::invalid_argument);
  EXPECT_EQ(engine_->wait(unknown, {}).error().code, Code::invalid_argument);
  engine_->destroy_stream(unknown);
}

TEST_P(CopyEngineContract, PointsOfADestroyedStreamHavePassed) {
  const StreamId s = stream();
  const StreamPoint point = engine_->record(s).value();
  finish(point);
  engine_->destroy_stream(s);
  EXPECT_EQ(engine_->query(point), PointState::passed);
  const StreamId next = stream();
  EXPECT_NE(next, s);
  EXPECT_TRUE(engine_->wait(next, point));
  EXPECT_EQ(engine_->copy(s, {}).error().code, Code::invalid_argument);
}

// One thread enqueues chains over two streams, two more make progress.
TEST_P(CopyEngineContract, ThreadsDoNotReorderAStream) {
  constexpr std::size_t rounds = 30;
  constexpr std::size_t bytes = 256 * KiB;
  std::byte* memory = device((rounds + 1) * bytes);
  std::vector<std::byte> block(bytes, std::byte{5});
  std::vector<std::byte> back(bytes);
  const std::array<StreamId, 2> streams{stream(), stream()};
  std::atomic<bool> stop{false};
  const auto pump = [&] {
    while (!stop) {
      if (!engine_->progress(64 * KiB)) std::this_thread::yield();
    }
  };
  std::thread first(pump);
  std::thread second(pump);
  enqueue(streams[0], memory, block.data(), bytes);
  StreamPoint last = engine_->record(streams[0]).value();
  for (std::size_t i = 0; i < rounds; ++i) {
    const StreamId s = streams[i % 2];
    EXPECT_TRUE(engine_->wait(s, last));
    enqueue(s, memory + (i + 1) * bytes, memory + i * bytes, bytes);
    last = engine_->record(s).value();
  }
  const StreamId reader = streams[rounds % 2];
  EXPECT_TRUE(engine_->wait(reader, last));
  enqueue(reader, back.data(), memory + rounds * bytes, bytes);
  EXPECT_EQ(engine_->synchronize(engine_->record(reader).value()), PointState::passed);
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(back, block);
}

}  // namespace terrace::test
