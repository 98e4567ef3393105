// Kind IO-PARTIAL: transfers that are cut short, are still in flight at the end, or come in great
// number.
#include <sys/resource.h>

#include <csignal>
#include <map>

#include "fault/world.hpp"

namespace terrace::test {
namespace {

class IoPartial : public testing::TestWithParam<bool> {
 protected:
  bool io_uring() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Devices, IoPartial, testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "Uring" : "File");
});

// O030: the file system takes part of a block, then nothing. A limit of file sizes stands in for
// one that is full, which a preallocated file does not meet.
TEST_P(IoPartial, AWriteThatIsCutShortIsNeverPublished) {
  TemporaryFolder folder;
  EXPECT_EQ(run_in_child([&] {
              Options options = toy_options(64, 64, folder.path());
              options.io_uring = io_uring();
              options.direct_io = false;
              ToyEngine engine(options);
              const Tokens prompt = tokens_from(0, 161);  // 20 blocks
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{10 * 8192 + 4096 + 100, RLIM_INFINITY};  // inside the 11th record
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return not_permitted;
              engine.serve(prompt);
              const PlaceStats cut = engine.cache().stats().places[kNvme0];
              EXPECT_EQ(cut.stored_blocks + cut.io_errors, 20U);
              EXPECT_GE(cut.io_errors, 10U);
              EXPECT_GE(cut.stored_blocks, 1U);
              EXPECT_EQ(cut.used_blocks, cut.stored_blocks) << "a short block is no block";
              engine.drop({kHbm0, kDram0});
              engine.serve(prompt);  // what it brings is checked
              engine.check_nothing_pinned();

              const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
              ::setrlimit(RLIMIT_FSIZE, &none);
              const Tokens other = tokens_from(5000, 161);
              engine.serve(other);
              engine.drop({kHbm0, kDram0});
              EXPECT_EQ(engine.serve(other).cached_by_place[kNvme0], 160U) << "with room again";
              return 0;
            }),
            0);
}

// O032: the cache goes while its reads are in flight, and their operations stay.
TEST_P(IoPartial, ACacheThatIsDestroyedUnderReadsEndsThem) {
  TemporaryFolder folder;
  std::vector<FetchOp> fetches(16);
  {
    Options options = toy_options(160, 32, folder.path());
    options.io_uring = io_uring();
    ToyEngine engine(options);
    for (std::uint32_t i = 0; i < fetches.size(); ++i) engine.serve(tokens_from(i * 1000, 65));
    engine.drop({kHbm0, kDram0});
    for (std::uint32_t i = 0; i < fetches.size(); ++i) {
      Match match = engine.model().match(tokens_from(i * 1000, 65)).value();
      EXPECT_EQ(match.block_count(), 8U);
      ASSERT_TRUE(engine.model().fetch(std::move(match), fetches[i]));
    }
    engine.cache().poll();
  }
  for (const FetchOp& fetch : fetches) EXPECT_TRUE(fetch.done());
}

// O033: many more requests than the queue holds.
TEST_P(IoPartial, ASmallQueueCarriesManyRequests) {
  constexpr std::uint32_t kDepth = 8;
  constexpr std::uint64_t kRequests = 10'000;
  TemporaryFolder folder;
  std::vector<std::byte> memory((kDepth + 1) * 4096);
  auto* base = memory.data() + (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096);
  BlockDeviceOptions options;
  options.path = folder / "blocks";
  options.size_bytes = 64 * 4096;
  options.queue_depth_max = kDepth;
  options.io_uring = io_uring();
  const auto device = open_block_device(options).value();
  std::vector<std::byte*> free;
  for (std::uint32_t i = 0; i < kDepth; ++i) free.push_back(base + i * 4096);
  std::map<std::uint64_t, std::byte*> flying;
  std::uint64_t begun = 0;
  std::uint64_t ended = 0;
  while (ended < kRequests) {
    while (!free.empty() && begun < kRequests) {
      const IoRequest one{IoRequest::Kind::read, begun % 64 * 4096, free.back(), 4096, begun};
      ASSERT_EQ(device->submit(std::span(&one, 1)), 1U);
      flying[begun++] = free.back();
      free.pop_back();
    }
    IoResult results[kDepth];
    const std::size_t count = device->reap(results);
    for (const IoResult& result : std::span(results).first(count)) {
      const auto request = flying.extract(result.user_data);
      ASSERT_FALSE(request.empty()) << "a second result, or nobody's";
      EXPECT_EQ(result.os_error, 0);
      free.push_back(request.mapped());
      ++ended;
    }
  }
  EXPECT_EQ(device->in_flight(), 0U);
}

// O034: the descriptor of a closed file is another file's a moment later.
TEST_P(IoPartial, AReusedDescriptorIsTheNewFile) {
  TemporaryFolder folder;
  alignas(4096) static std::byte page[4096];
  const auto transfer = [&](const std::string& path, IoRequest::Kind kind) {
    BlockDeviceOptions options;
    options.path = path;
    options.size_bytes = 4096;
    options.io_uring = io_uring();
    const auto device = open_block_device(options).value();
    const IoRequest one{kind, 0, page, sizeof page, 1};
    EXPECT_EQ(device->submit(std::span(&one, 1)), 1U);
    IoResult result{0, -1};
    while (device->reap(std::span(&result, 1)) == 0) {
    }
    EXPECT_EQ(result.os_error, 0);
  };
  for (const char* name : {"a", "b", "c"}) {
    std::memset(page, name[0], sizeof page);
    transfer(folder / name, IoRequest::Kind::write);
  }
  for (const char* name : {"c", "a", "b", "a"}) {
    transfer(folder / name, IoRequest::Kind::read);
    EXPECT_EQ(page[7], static_cast<std::byte>(name[0]));
  }
}

}  // namespace
}  // namespace terrace::test
