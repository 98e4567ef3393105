// In steady state the seams allocate nothing: what they need is reserved when a stream or a device
// is made.
#include <atomic>
#include <cstdlib>
#include <new>

#include "io/device_fixture.hpp"

namespace {

std::atomic<std::size_t> allocations{0};

}  // namespace

// Not inlined: the compiler would see free() where it expects the counterpart of new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
  return operator new(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace terrace::test {
namespace {

TEST(SteadyState, CopiesAllocateNothing) {
  const auto engine = make_host_copy_engine(3);
  const StreamId a = engine->create_stream().value();
  const StreamId b = engine->create_stream().value();
  const Arena arena(2);
  const Copy copy{arena.block(1), arena.block(0), block_bytes};
  const std::size_t before = allocations;
  EXPECT_GT(before, 0u) << "the counter counts";
  for (int i = 0; i < 70000; ++i) {  // more than a queue holds
    ASSERT_TRUE(engine->copy(a, {&copy, i % 100 == 0 ? 1u : 0u}));
    ASSERT_TRUE(engine->wait(b, engine->record(a).value()));
    ASSERT_EQ(engine->synchronize(engine->record(b).value()), PointState::passed);
  }
  EXPECT_EQ(allocations, before);
}

TEST(SteadyState, TransfersAllocateNothing) {
  for (const bool io_uring : {true, false}) {
    const TemporaryFolder folder;
    const Arena arena(8);
    BlockDeviceOptions options;
    options.path = folder.file();
    options.size_bytes = 8 * block_bytes;
    options.queue_depth_max = 8;
    options.buffers = arena.bytes();
    options.io_uring = io_uring;
    const auto device = open_block_device(options).value();
    std::vector<IoRequest> batch;
    for (std::size_t i = 0; i < 8; ++i) {
      batch.push_back(request(IoRequest::Kind::write, i, arena.block(i), i));
    }
    std::vector<IoResult> results(8);
    const std::size_t before = allocations;
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(device->submit(batch), 8u);
      while (device->in_flight() > 0) (void)device->reap(results);
    }
    EXPECT_EQ(allocations, before);
  }
}

}  // namespace
}  // namespace terrace::test
