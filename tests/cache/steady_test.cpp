// The data path in steady state: polling allocates nothing and meets no page fault, and a byte is
// copied once in host memory on its way from the drive to HBM.
#include <sys/resource.h>

#include <cstdlib>
#include <new>

#include "cache/harness.hpp"

namespace {

thread_local std::size_t allocations = 0;  // of this thread: the index has its own

}  // namespace

// Not inlined: the compiler would see free() where it expects the counterpart of new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace terrace::test {
namespace {

std::uint64_t page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_minflt + usage.ru_majflt);
}

// Counts what is copied between host and device.
class CountingEngine final : public CopyEngine {
 public:
  std::string_view name() const noexcept override { return "host"; }
  Result<std::byte*> allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void deallocate(std::byte* base) noexcept override { inner_->deallocate(base); }
  Result<void> pin(std::byte* base, std::size_t bytes) override { return inner_->pin(base, bytes); }
  void unpin(std::byte* base) noexcept override { inner_->unpin(base); }
  Result<StreamId> create_stream() override { return inner_->create_stream(); }
  void destroy_stream(StreamId stream) noexcept override { inner_->destroy_stream(stream); }
  Result<void> copy(StreamId stream, std::span<const Copy> copies) override {
    for (const Copy& copy : copies) copied_bytes += copy.bytes;
    return inner_->copy(stream, copies);
  }
  Result<StreamPoint> record(StreamId stream) override { return inner_->record(stream); }
  Result<void> wait(StreamId stream, StreamPoint point) override {
    return inner_->wait(stream, point);
  }
  PointState query(StreamPoint point) noexcept override { return inner_->query(point); }
  PointState synchronize(StreamPoint point) noexcept override { return inner_->synchronize(point); }
  bool progress(std::size_t budget_bytes) override { return inner_->progress(budget_bytes); }

  std::uint64_t copied_bytes = 0;

 private:
  std::unique_ptr<CopyEngine> inner_ = make_host_copy_engine();
};

class SteadyState : public testing::Test {
 protected:
  SteadyState() {
    Options options = toy_options(64, 64, folder_.path());
    options.device = device_;
    engine_ = std::make_unique<ToyEngine>(options);
    for (std::uint32_t i = 0; i < 4; ++i) engine_->serve(prompt(i));
  }

  static Tokens prompt(std::uint32_t number) { return tokens_from(number * 1000, 201); }

  struct Cost {
    std::size_t allocations = 0;
    std::uint64_t page_faults = 0;
  };

  // One prompt from NVMe to HBM; what the calls that move it cost.
  Cost fetch_cold(std::uint32_t number) {
    engine_->drop({kHbm0, kDram0});
    const Cache& cache = engine_->cache();
    Match match = engine_->model().match(prompt(number)).value();
    FetchOp op;
    const std::size_t allocations_before = allocations;
    const std::uint64_t faults_before = page_faults();
    EXPECT_TRUE(engine_->model().fetch(std::move(match), op));
    while (!op.done()) cache.poll();
    const Cost cost{allocations - allocations_before, page_faults() - faults_before};
    EXPECT_EQ(op.blocks_usable(), 25u);
    cache.device().synchronize(op.layer_point(2));
    return cost;
  }

  TemporaryFolder folder_;
  std::shared_ptr<CountingEngine> device_ = std::make_shared<CountingEngine>();
  std::unique_ptr<ToyEngine> engine_;
};

TEST_F(SteadyState, AFetchFromNvmeAllocatesNothingAndMeetsNoPageFault) {
  for (std::uint32_t i = 0; i < 20; ++i) fetch_cold(i % 4);
  Cost sum;
  for (std::uint32_t i = 0; i < 40; ++i) {
    const Cost cost = fetch_cold(i % 4);
    sum.allocations += cost.allocations;
    sum.page_faults += cost.page_faults;
  }
  EXPECT_GT(allocations, 0u) << "the counter counts";
  EXPECT_EQ(sum.allocations, 0u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // shadow memory comes late
  EXPECT_EQ(sum.page_faults, 0u);
#endif
}

TEST_F(SteadyState, AByteIsCopiedOnceInHostMemory) {
  const auto& hbm = [&] { return engine_->cache().stats().places[kHbm0]; };
  fetch_cold(0);
  const std::uint64_t copied = device_->copied_bytes;
  const std::uint64_t arrived = hbm().bytes_written;
  for (std::uint32_t i = 0; i < 4; ++i) fetch_cold(i);
  EXPECT_EQ(hbm().bytes_written - arrived, 4 * 25 * toy_layout().block_bytes());
  EXPECT_EQ(device_->copied_bytes - copied, hbm().bytes_written - arrived);
}

}  // namespace
}  // namespace terrace::test
