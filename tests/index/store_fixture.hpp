// A store on a real file system, with blocks in it.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "cache/recovery.hpp"
#include "index/sample.hpp"
#include "io/system_clock.hpp"
#include "terrace/units.hpp"
#include "tier/nvme_store.hpp"

namespace terrace::test {

using internal::NvmeStore;
using internal::SystemClock;

class StoreTest : public testing::Test {
 protected:
  void use(const Layout& layout) {
    layout_ = layout;
    format_ = internal::RecordFormat(layout, 4096);
  }

  Layout layout_ = small_layout();
  internal::RecordFormat format_{layout_, 4096};
  TempDir directory_;
  std::string log_;
  bool io_uring_ = true;

  Result<std::unique_ptr<NvmeStore>> try_open(std::uint64_t bytes_max) {
    internal::NvmeStoreOptions options;
    options.path = directory_ / "cache";
    options.bytes_max = bytes_max;
    options.queue_depth_max = 8;
    options.io_uring = io_uring_;
    options.log = [this](const std::string& line) { log_ += line + "\n"; };
    return NvmeStore::open(options, layout_, format_);
  }

  std::unique_ptr<NvmeStore> open(std::uint64_t bytes_max) {
    auto store = try_open(bytes_max);
    EXPECT_TRUE(store) << store.error().message << " " << store.error().os_error;
    return store ? std::move(*store) : nullptr;
  }

  // Writes the record, then its index entry, as the mover does.
  void write(NvmeStore& store, std::uint32_t slot, const internal::RecordMeta& meta) {
    const AlignedBytes record = make_record(format_, meta);
    ASSERT_EQ(transfer(store, IoRequest::Kind::write, slot, record), 0);
    while (!store.index().put(slot, record.span().first(format_.entry_bytes()))) {
      std::this_thread::yield();
    }
  }

  // Returns: errno of the device.
  int transfer(NvmeStore& store, IoRequest::Kind kind, std::uint32_t slot,
               const AlignedBytes& record) {
    const IoRequest request{kind, store.slot_offset(slot), record.span().data(),
                            static_cast<std::uint32_t>(record.span().size()), slot};
    IoResult result;
    EXPECT_EQ(store.device().submit(std::span(&request, 1)), 1U);
    while (store.device().reap(std::span(&result, 1)) == 0) std::this_thread::yield();
    EXPECT_EQ(result.user_data, slot);
    return result.os_error;
  }

  void fill(NvmeStore& store, const Chain& chain) {
    for (std::uint32_t i = 0; i < chain.blocks.size(); ++i) write(store, i, chain.blocks[i]);
  }

  struct Seen {
    std::uint32_t slot;
    std::uint64_t sequence;
    Digest lineage;
  };
  // What recovery makes resident, in the order in which it was written.
  std::vector<Seen> recover(NvmeStore& store) {
    const SystemClock clock;
    const internal::BlockStore::Sizes sizes{{0, 0, store.slot_count()}, {}, layout_.block_tokens};
    internal::BlockStore blocks(sizes, make_lru_policy(internal::BlockStore::table_capacity(sizes)),
                                clock, 1);
    Told told(blocks);
    const auto found = store.find(told, 0);
    EXPECT_TRUE(found) << found.error().message;
    const std::vector<std::uint32_t> useless = told.recovery.finish();
    store.settle(useless);
    for (const std::uint32_t slot : useless) told.seen.erase(slot);
    EXPECT_EQ(blocks.stats().recovered_blocks, told.seen.size());
    std::vector<Seen> seen;
    for (const auto& [slot, what] : told.seen) seen.push_back(what);
    std::ranges::sort(seen, {}, &Seen::sequence);
    return seen;
  }

  // Listens in on what recovery is told.
  struct Told final : internal::RecordSink {
    explicit Told(internal::BlockStore& store) : recovery(store) {}
    void add(std::uint32_t slot, const internal::RecordMeta& meta) override {
      EXPECT_EQ(chain_next(meta.parent, meta.tokens), meta.self);
      seen[slot] = {slot, meta.sequence, meta.self.lineage};
      recovery.add(slot, meta);
    }
    void forget_from(std::uint32_t slot) override {
      seen.erase(seen.lower_bound(slot), seen.end());
      recovery.forget_from(slot);
    }
    internal::Recovery recovery;
    std::map<std::uint32_t, Seen> seen;
  };

  // Recovers, and checks that exactly the first `count` blocks of `chain` are there, in order, byte
  // for byte.
  void expect_recovers(NvmeStore& store, const Chain& chain, std::size_t count) {
    const auto seen = recover(store);
    ASSERT_EQ(seen.size(), count);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(seen[i].sequence, chain.blocks[i].sequence);
      EXPECT_EQ(seen[i].lineage, chain.blocks[i].self.lineage);
      const AlignedBytes record(format_.record_bytes());
      ASSERT_EQ(transfer(store, IoRequest::Kind::read, seen[i].slot, record), 0);
      EXPECT_EQ(format_.verify(record.span(), chain.blocks[i]), internal::Verdict::good);
      EXPECT_EQ(record.span()[format_.header_bytes() + 1], chain.blocks[i].self.lineage[1]);
    }
  }
};

// Samples disk usage from a thread of its own.
class UsageSampler {
 public:
  explicit UsageSampler(std::string path) : path_(std::move(path)), thread_([this] { run(); }) {}
  ~UsageSampler() { stop(); }
  std::uint64_t stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
    return peak_;
  }

 private:
  void run() {
    while (!done_) {
      peak_ = std::max(peak_.load(), disk_usage(path_));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  const std::string path_;
  std::atomic<bool> done_ = false;
  std::atomic<std::uint64_t> peak_ = 0;
  std::thread thread_;
};

}  // namespace terrace::test
