// The data path in steady state: a request allocates nothing and meets no page fault, and a byte is
// copied once in host memory on its way from the drive to HBM.
#include <openssl/crypto.h>
#include <sys/resource.h>

#include <cstdlib>
#include <new>
#include <numeric>

#include "cache/harness.hpp"

namespace {

thread_local std::size_t allocations = 0;  // of this thread: the index has its own

// OpenSSL has functions of its own for memory.
const bool openssl_is_counted = CRYPTO_set_mem_functions(
                                    [](std::size_t bytes, const char*, int) {
                                      ++allocations;
                                      return std::malloc(bytes);
                                    },
                                    [](void* memory, std::size_t bytes, const char*, int) {
                                      ++allocations;
                                      return std::realloc(memory, bytes);
                                    },
                                    [](void* memory, const char*, int) { std::free(memory); }) == 1;

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
    options.nvme_write_bytes_per_day = 1 * GiB;  // so that admission counts who asks for what
    engine_ = std::make_unique<ToyEngine>(options);
    for (std::uint32_t i = 0; i < 4; ++i) engine_->serve(prompt(i));
  }

  static constexpr std::uint32_t kBlocks = 25;
  static Tokens prompt(std::uint32_t number) { return tokens_from(number * 1000, kBlocks * 8 + 1); }

  struct Cost {
    std::size_t allocations = 0;
    std::uint64_t page_faults = 0;
  };
  template <class Calls>
  static Cost cost_of(const Calls& calls) {
    const std::size_t allocations_before = allocations;
    const std::uint64_t faults_before = page_faults();
    calls();
    return {allocations - allocations_before, page_faults() - faults_before};
  }
  // What it costs when it has been done often.
  template <class Calls>
  static void expect_free(const Calls& calls) {
    for (std::uint32_t i = 0; i < 20; ++i) calls(i);
    EXPECT_GT(allocations, 0u) << "the counter counts";
    Cost sum;
    for (std::uint32_t i = 20; i < 60; ++i) {
      const Cost cost = calls(i);
      sum.allocations += cost.allocations;
      sum.page_faults += cost.page_faults;
    }
    EXPECT_EQ(sum.allocations, 0u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // shadow memory comes late
    EXPECT_EQ(sum.page_faults, 0u);
#endif
  }

  // One prompt from NVMe to HBM.
  Cost fetch_cold(std::uint32_t number) {
    engine_->drop({kHbm0, kDram0});
    const Tokens tokens = prompt(number);
    FetchOp op;
    const Cost cost = cost_of([&] {
      Match match = engine_->model().match(tokens).value();
      EXPECT_TRUE(engine_->model().fetch(std::move(match), op));
      while (!op.done()) engine_->cache().poll();
    });
    EXPECT_EQ(op.blocks_usable(), kBlocks);
    engine_->cache().device().synchronize(op.layer_point(2));
    return cost;
  }

  // A prompt that is in the cache, or not, all that an engine calls for it, and the spill after it.
  Cost serve(const Tokens& tokens, const Scope& scope, std::uint32_t cached) {
    const Model& model = engine_->model();
    return cost_of([&] {
      FetchOp op;
      EXPECT_TRUE(model.fetch(model.match(tokens, scope).value(), op));
      while (!op.done()) engine_->cache().poll();
      EXPECT_EQ(op.blocks_usable(), cached);
      ReadLease prefix = op.take_lease();
      WriteLease fresh = model.reserve(prefix, kBlocks - cached).value();
      EXPECT_TRUE(model.commit(fresh, std::span(tokens).subspan(cached * 8, (kBlocks - cached) * 8),
                               {}, prefix));
      prefix.release();
      EXPECT_TRUE(engine_->cache().flush(10s));
    });
  }

  TemporaryFolder folder_;
  std::shared_ptr<CountingEngine> device_ = std::make_shared<CountingEngine>();
  std::unique_ptr<ToyEngine> engine_;
};

TEST_F(SteadyState, AFetchFromNvmeAllocatesNothingAndMeetsNoPageFault) {
  expect_free([&](std::uint32_t i) { return fetch_cold(i % 4); });
}

TEST_F(SteadyState, ARequestAllocatesNothingAndMeetsNoPageFault) {
  ASSERT_TRUE(openssl_is_counted);
  expect_free([&](std::uint32_t i) { return serve(prompt(100 + i), {}, 0); });
  const Tokens again = prompt(3);
  engine_->serve(again);
  expect_free([&](std::uint32_t) { return serve(again, {}, kBlocks); });
}

TEST_F(SteadyState, ARequestOfATenantAllocatesNothing) {
  const Scope scope{.adapter = digest_of("adapter"), .tenant_salt = "tenant"};
  expect_free([&](std::uint32_t i) { return serve(prompt(100 + i), scope, 0); });
}

TEST_F(SteadyState, AStoreFromAPoolAllocatesNothing) {
  const Layout layout = toy_layout();
  std::vector<std::byte> memory(kBlocks * layout.block_bytes());
  PoolDescription pool{.slot_count = kBlocks, .regions = {}};
  for (std::uint32_t layer = 0; layer < layout.layer_count(); ++layer) {
    for (std::uint32_t component = 0; component < 2; ++component) {
      const Slice slice = layout.component_slice(layer, component);
      pool.regions.push_back(
          {memory.data() + slice.offset, layout.block_bytes(), slice.bytes, layer, component});
    }
  }
  const PoolId id = engine_->cache().register_pool(pool).value();
  std::vector<std::uint32_t> slots(kBlocks);
  std::iota(slots.begin(), slots.end(), 0u);
  expect_free([&](std::uint32_t i) {
    const Tokens tokens = prompt(100 + i);
    return cost_of([&] {
      Prefix prefix = engine_->model().root().value();
      StoreOp op;
      EXPECT_TRUE(
          engine_->model().store(id, slots, std::span(tokens).first(kBlocks * 8), {}, prefix, op));
      while (!op.done()) engine_->cache().poll();
      EXPECT_EQ(op.blocks_stored(), kBlocks);
      EXPECT_TRUE(engine_->cache().flush(10s));
    });
  });
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
