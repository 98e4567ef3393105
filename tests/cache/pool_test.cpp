// The other way to own HBM: the engine's own paged KV, registered, copied in and out of.
#include "cache/harness.hpp"

namespace terrace::test {
namespace {

// An engine's pool: one buffer a layer and component, slots with a gap between them.
class EnginePool {
 public:
  static constexpr std::uint64_t kGap = 64;

  EnginePool(const Layout& layout, std::uint32_t slot_count) : layout_(layout) {
    for (std::uint32_t layer = 0; layer < layout.layer_count(); ++layer) {
      for (std::uint32_t component = 0; component < 2; ++component) {
        const std::uint64_t bytes = layout.component_slice(layer, component).bytes;
        buffers_.emplace_back(slot_count * (bytes + kGap), std::byte{0xee});
        description_.regions.push_back(
            {buffers_.back().data(), bytes + kGap, bytes, layer, component});
      }
    }
    description_.slot_count = slot_count;
  }

  const PoolDescription& description() const { return description_; }

  void fill(std::uint32_t slot, const ChainPoint& point) {
    for_each_byte(slot, [&](std::byte& byte, std::size_t at) { byte = kv_byte(point, at); });
  }
  std::size_t wrong_bytes(std::uint32_t slot, const ChainPoint& point) {
    std::size_t wrong = 0;
    for_each_byte(slot,
                  [&](std::byte& byte, std::size_t at) { wrong += byte != kv_byte(point, at); });
    return wrong;
  }
  bool gaps_are_untouched() const {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const PoolRegion& region = description_.regions[i];
      for (std::uint32_t slot = 0; slot < description_.slot_count; ++slot) {
        for (std::uint64_t at = region.bytes; at < region.stride_bytes; ++at) {
          if (buffers_[i][slot * region.stride_bytes + at] != std::byte{0xee}) return false;
        }
      }
    }
    return true;
  }

 private:
  template <class Visit>
  void for_each_byte(std::uint32_t slot, const Visit& visit) {
    for (const PoolRegion& region : description_.regions) {
      const Slice slice = layout_.component_slice(region.layer, region.component);
      for (std::uint64_t at = 0; at < slice.bytes; ++at) {
        visit(region.base[slot * region.stride_bytes + at], slice.offset + at);
      }
    }
  }

  Layout layout_;
  std::vector<std::vector<std::byte>> buffers_;
  PoolDescription description_;
};

class PoolTest : public testing::Test {
 protected:
  PoolTest() : engine_(toy_options(0, 32, folder_.path())), pool_(toy_layout(), 40) {
    id_ = engine_.cache().register_pool(pool_.description()).value();
  }

  // Computes `prompt` into the first slots and stores its whole blocks.
  std::uint32_t store(const Tokens& prompt) {
    const auto blocks = static_cast<std::uint32_t>(prompt.size() / 8);
    std::vector<std::uint32_t> slots(blocks);
    Prefix prefix = engine_.model().root().value();
    for (std::uint32_t i = 0; i < blocks; ++i) {
      slots[i] = blocks - 1 - i;
      pool_.fill(slots[i], engine_.point_of(prompt, i, prefix.root));
    }
    StoreOp op;
    const auto stored =
        engine_.model().store(id_, slots, std::span(prompt).first(blocks * 8), {}, prefix, op);
    EXPECT_TRUE(stored) << stored.error().message;
    for (int i = 0; i < 10000 && !op.done(); ++i) engine_.cache().poll(100us);
    EXPECT_TRUE(op.done());
    EXPECT_EQ(prefix.blocks, op.blocks_stored());
    return op.blocks_stored();
  }

  // Fetches `prompt` into the slots from `first_slot` on, and checks the bytes. Returns: usable
  // blocks.
  std::uint32_t fetch(const Tokens& prompt, std::uint32_t first_slot) {
    Match match = engine_.model().match(prompt).value();
    const ChainPoint root = match.prefix().root;
    std::vector<std::uint32_t> slots(match.block_count());
    for (std::uint32_t i = 0; i < slots.size(); ++i) slots[i] = first_slot + i;
    FetchOp op;
    EXPECT_TRUE(engine_.model().fetch(std::move(match), id_, slots, {}, op));
    engine_.wait(op);
    for (std::uint32_t layer = 0; layer < 3; ++layer)
      engine_.cache().device().synchronize(op.layer_point(layer));
    for (std::uint32_t i = 0; i < op.blocks_usable(); ++i) {
      EXPECT_EQ(pool_.wrong_bytes(slots[i], engine_.point_of(prompt, i, root)), 0u)
          << "block " << i;
    }
    const ReadLease lease = op.take_lease();
    EXPECT_EQ(lease.prefix().blocks, op.blocks_usable());
    EXPECT_TRUE(lease.slots().empty());
    return op.blocks_usable();
  }

  TemporaryFolder folder_;
  ToyEngine engine_;
  EnginePool pool_;
  PoolId id_;
};

TEST_F(PoolTest, StoreThenFetchFromDramAndNvme) {
  const Tokens prompt = tokens_from(0, 81);
  EXPECT_EQ(fetch(prompt, 0), 0u);
  EXPECT_EQ(store(prompt), 10u);
  EXPECT_EQ(fetch(prompt, 20), 10u);
  engine_.drop({kDram0});
  EXPECT_EQ(fetch(prompt, 12), 10u);
  EXPECT_TRUE(pool_.gaps_are_untouched());
  engine_.cache().poll();
  engine_.check_nothing_pinned();
  engine_.check_conservation();
}

TEST_F(PoolTest, StoringAgainCopiesNothing) {
  const Tokens prompt = tokens_from(0, 81);
  store(prompt);
  const std::uint64_t committed = engine_.cache().stats().committed_blocks;
  EXPECT_EQ(store(prompt), 10u);
  EXPECT_EQ(engine_.cache().stats().committed_blocks, committed);
}

TEST_F(PoolTest, StoringMoreThanDramHoldsKeepsAPrefix) {
  const Tokens prompt = tokens_from(0, 321);  // 40 blocks, 32 slots
  const std::uint32_t stored = store(prompt);
  EXPECT_GE(stored, 32u);
  EXPECT_LE(stored, 40u);
  EXPECT_GE(fetch(prompt, 0), 1u);
}

TEST_F(PoolTest, RefusesWhatDoesNotFit) {
  PoolDescription missing = pool_.description();
  missing.regions.pop_back();
  EXPECT_EQ(engine_.cache().register_pool(missing).error().code, Code::invalid_argument);
  PoolDescription twice = pool_.description();
  twice.regions[1] = twice.regions[0];
  EXPECT_EQ(engine_.cache().register_pool(twice).error().code, Code::invalid_argument);
  PoolDescription short_region = pool_.description();
  --short_region.regions[2].bytes;
  EXPECT_EQ(engine_.cache().register_pool(short_region).error().code, Code::invalid_argument);

  Prefix prefix = engine_.model().root().value();
  StoreOp op;
  const std::vector<std::uint32_t> outside{40};
  EXPECT_EQ(engine_.model().store(id_, outside, tokens_from(0, 8), {}, prefix, op).error().code,
            Code::invalid_argument);
  engine_.cache().unregister_pool(id_);
  const std::vector<std::uint32_t> slot{0};
  EXPECT_EQ(engine_.model().store(id_, slot, tokens_from(0, 8), {}, prefix, op).error().code,
            Code::invalid_argument);
}

}  // namespace
}  // namespace terrace::test
