// NvmeTransfers against a drive that notes what it gets, and completes what the test says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "index/sample.hpp"
#include "move/nvme_transfers.hpp"
#include "support/test_clock.hpp"
#include "terrace/units.hpp"

namespace terrace::test {
namespace {

using namespace std::chrono_literals;
using internal::BlockId;
using internal::BlockStore;
using internal::NvmeTransfers;
using internal::Transfer;
using Kind = IoRequest::Kind;
using Step = Transfer::Step;

constexpr std::uint32_t kDepth = 4;

// A drive of paper: it moves no bytes, and ends a request when the test says so.
class PaperDrive final : public BlockDevice {
 public:
  struct Taken {
    Kind kind;
    std::uint64_t user_data;
    std::size_t pieces;
  };

  explicit PaperDrive(std::uint64_t size_bytes) : size_bytes_(size_bytes) {}
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  std::uint32_t alignment() const noexcept override { return 4096; }
  BlockDeviceFacts facts() const noexcept override { return {}; }
  std::size_t in_flight() const noexcept override { return flights_.size() + results_.size(); }
  int wait_fd() const noexcept override { return -1; }
  Result<void> sync() override { return {}; }

  std::size_t submit(std::span<const IoRequest> requests) override {
    std::size_t taken = 0;
    for (; taken < requests.size() && in_flight() < room; ++taken) take(requests[taken]);
    return taken;
  }
  std::size_t reap(std::span<IoResult> results) override {
    const std::size_t count = std::min(results.size(), results_.size());
    std::copy_n(results_.begin(), count, results.begin());
    results_.erase(results_.begin(), results_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

  bool idle() const { return flights_.empty(); }
  // The oldest request in flight ends.
  void complete(int os_error = 0) {
    results_.push_back({flights_.front().user_data, os_error});
    flights_.erase(flights_.begin());
  }
  std::size_t syncs = 0;
  // What it took since the last call, but for syncs.
  std::vector<Taken> news() { return std::exchange(news_, {}); }

  std::size_t room = 0;  // requests it takes at a time

 private:
  void take(const IoRequest& request) {
    if (request.kind == Kind::sync) {
      ++syncs;
      results_.push_back({request.user_data, 0});
      return;
    }
    news_.push_back({request.kind, request.user_data, 1 + request.more.size()});
    flights_.push_back(news_.back());
  }

  const std::uint64_t size_bytes_;
  std::vector<Taken> flights_;
  std::vector<Taken> news_;
  std::vector<IoResult> results_;
};

class TransfersTest : public testing::Test {
 protected:
  TransfersTest() {
    internal::DramTier& dram = tiers_.dram;
    dram.slot_count = 64;
    dram.stride_bytes = tiers_.format.record_bytes();
    dram.payload_offset = tiers_.format.header_bytes();
    dram.memory = internal::HostMemory::allocate(dram.slot_count * dram.stride_bytes, {}).value();
    internal::NvmeStoreOptions how;
    how.bytes_max = 4 * MiB;
    how.queue_depth_max = kDepth;
    how.slot_index = [](const std::string&) { return internal::make_null_slot_index(); };
    how.block_device = [this](const BlockDeviceOptions& options) {
      auto drive = std::make_unique<PaperDrive>(options.size_bytes);
      drive_ = drive.get();
      return Result<std::unique_ptr<BlockDevice>>(std::move(drive));
    };
    const std::string path = folder_ / "drive";
    tiers_.nvme =
        internal::NvmeTier::open(std::span(&path, 1), how, tiers_.layout, tiers_.format).value();
    BlockStore::Sizes sizes{
        {0, dram.slot_count, tiers_.nvme->slot_count()}, {}, tiers_.layout.block_tokens};
    store_.emplace(sizes, make_lru_policy(BlockStore::table_capacity(sizes)), clock_, 1);
    transfers_.emplace(*store_, tiers_, clock_, kDepth);
  }

  // A block of its own chain, in DRAM and with a slot on the drive.
  BlockId make() {
    tokens_.assign(tiers_.layout.block_tokens, ++blocks_);
    internal::RecordMeta meta;
    meta.tokens = tokens_;
    meta.self = chain_next(meta.parent, meta.tokens);
    const BlockId id = store_->insert(meta, internal::kNoBlock);
    EXPECT_TRUE(store_->begin_landing(id, kDram0, internal::Loss::refused));
    store_->finish_landing(id, kDram0);
    return id;
  }

  void write(std::size_t count) { start(Step::writing, count, true); }
  void write_run(std::size_t count) { start(Step::writing, count, false); }
  // Of what was never written: these tests look at the order.
  void read(std::size_t count) { start(Step::reading, count, true); }

  // Neighbours on the drive become runs: where they are `apart`, each lies alone.
  void start(Step step, std::size_t count, bool apart) {
    for (std::size_t i = 0; i < count; ++i) {
      if (apart) (void)store_->acquire_slot(kNvme0, internal::Loss::refused);
      const BlockId id = make();
      ASSERT_TRUE(store_->begin_landing(id, kNvme0, internal::Loss::refused));
      store_->pin(id, kDram0);
      transfers_->start(step, id);
    }
    transfers_->hand_over();
  }

  // Until nothing moves any more: what is sealed ahead is sealed in steps.
  void pump() {
    bool moved = true;
    while (moved) {
      moved = transfers_->reap();
      moved |= transfers_->take_ended([this](std::uint32_t index) { end(index); });
      moved |= transfers_->submit();
    }
  }
  void end(std::uint32_t index) {
    const Transfer transfer = (*transfers_)[index];
    errors_.push_back(transfer.os_error);
    transfers_->finish(index);
    if (!transfer.is_write()) return;
    transfer.ok() ? store_->finish_landing(transfer.block, kNvme0)
                  : store_->fail_landing(transfer.block, kNvme0);
    store_->unpin(transfer.block, kDram0);
  }

  bool is_sealed(BlockId id) const {
    return tiers_.format.verify(tiers_.dram.record(store_->table()[id].at[kDram0].slot),
                                store_->table().meta(id)) == internal::Verdict::good;
  }

  std::vector<Kind> kinds() {
    std::vector<Kind> kinds;
    for (const auto& taken : drive_->news()) kinds.push_back(taken.kind);
    return kinds;
  }

  TempDir folder_;
  TestClock clock_;
  internal::Tiers tiers_{Layout::full(2, 1, 16, KvDtype::bf16), 4096};
  PaperDrive* drive_ = nullptr;
  std::optional<BlockStore> store_;
  std::optional<NvmeTransfers> transfers_;
  std::vector<TokenId> tokens_;
  std::uint32_t blocks_ = 0;
  std::vector<std::int32_t> errors_;
};

// Somebody waits for a read, nobody for a write.
TEST_F(TransfersTest, ReadsGoBeforeWritesThatCameEarlier) {
  write(8);
  pump();
  read(2);
  pump();
  drive_->room = 3;
  pump();
  EXPECT_EQ(kinds(), (std::vector{Kind::read, Kind::read, Kind::write}));
}

// What is never written is lost once DRAM is full: reads that never end must not stop writes.
TEST_F(TransfersTest, OneRequestInFiveIsAWriteHoweverManyReadsWait) {
  write(8);
  read(30);
  drive_->room = kDepth;
  std::vector<Kind> order;
  while (order.size() < 20) {
    pump();
    for (const Kind kind : kinds()) order.push_back(kind);
    drive_->complete();
  }
  EXPECT_EQ(std::ranges::count(order, Kind::write), 4);
  EXPECT_EQ(std::ranges::count(std::span(order).first(10), Kind::write), 2);
}

// A completed request is replaced at once, by one that need not be sealed first.
TEST_F(TransfersTest, AsManyWritesWaitAsAreInFlightAndAreSealed) {
  EXPECT_GE(transfers_->writes_free(), 2 * kDepth * transfers_->run_blocks_max());
  drive_->room = kDepth;
  write(2 * kDepth);
  pump();
  EXPECT_EQ(drive_->news().size(), kDepth);
  std::size_t sealed = 0;
  for (BlockId id = 0; id < 2 * kDepth; ++id) sealed += is_sealed(id);
  EXPECT_EQ(sealed, 2 * kDepth);
}

// A power cut takes five seconds of writes, also of a drive that never rests.
TEST_F(TransfersTest, I21WritesThatNeverEndAreSynced) {
  drive_->room = kDepth;
  write(kDepth);
  for (int second = 0; second < 20; ++second) {
    clock_.advance(1s);
    write(kDepth);
    pump();
    for (std::uint32_t i = 0; i < kDepth; ++i) {
      drive_->complete();
      pump();
      ASSERT_FALSE(drive_->idle()) << "it has a rest";
    }
  }
  EXPECT_GE(drive_->syncs, 3u);
  EXPECT_LE(drive_->syncs, 5u);
}

TEST_F(TransfersTest, I18WhatIsOverdueIsLateUntilItIsAnswered) {
  drive_->room = kDepth;
  read(1);
  write(1);
  pump();
  const auto look = [this] { transfers_->watch([](const Transfer&) {}); };
  look();
  EXPECT_EQ(transfers_->late(), 0u);
  clock_.advance(NvmeTransfers::kAnswerMax);
  look();
  EXPECT_EQ(transfers_->late(), 0u) << "nobody has looked meanwhile";
  for (auto waited = 0s; waited < NvmeTransfers::kAnswerMax; waited += 1s) {
    clock_.advance(1s);
    look();
  }
  EXPECT_EQ(transfers_->late(), 2u);
  drive_->complete();
  drive_->complete();
  pump();
  EXPECT_EQ(transfers_->late(), 0u);
}

// One bad sector costs one block, in either direction.
TEST_F(TransfersTest, I12ARunThatFailsIsTriedAgainBlockByBlock) {
  drive_->room = kDepth;
  write_run(8);
  pump();
  const auto run = drive_->news();
  ASSERT_EQ(run.size(), 1u);
  EXPECT_EQ(run[0].pieces, 8u);
  drive_->complete(EIO);
  for (int i = 0; i < 8; ++i) {
    pump();
    drive_->complete(i == 3 ? EIO : 0);
  }
  pump();
  EXPECT_EQ(drive_->news().size(), 8u);
  EXPECT_EQ(std::ranges::count(errors_, EIO), 1);
  EXPECT_EQ(std::ranges::count(errors_, 0), 7);
}

}  // namespace
}  // namespace terrace::test
