// A paged KV pool of the engine's own, as register_pool() takes it: K and V of every layer apart, and
// holes between the slots.
// Thread rule: one thread.
#pragma once

#include <cstring>
#include <vector>

#include "terrace/cache.hpp"

namespace terrace::sim {

class EnginePool {
 public:
  EnginePool(const Layout& layout, std::uint32_t slot_count)
      : layout_(layout), slot_count_(slot_count), taken_(slot_count, false) {
    constexpr std::uint64_t kHole = 64;
    for (std::uint32_t layer = 0; layer < layout.layer_count(); ++layer) {
      for (std::uint32_t component = 0; component < 2; ++component) {
        const std::uint64_t bytes = layout.component_slice(layer, component).bytes;
        memory_.emplace_back((bytes + kHole) * slot_count, std::byte{0xdd});
        regions_.push_back({memory_.back().data(), bytes + kHole, bytes, layer, component});
      }
    }
  }

  PoolDescription description() const { return {slot_count_, regions_}; }
  std::uint32_t slot_count() const { return slot_count_; }
  const std::vector<PoolRegion>& regions() const { return regions_; }
  std::byte* data(const PoolRegion& region, std::uint32_t slot) const {
    return region.base + slot * region.stride_bytes;
  }

  // Returns: `count` slots that nobody uses; fewer where there are none.
  std::vector<std::uint32_t> take(std::size_t count) {
    std::vector<std::uint32_t> slots;
    for (std::uint32_t slot = 0; slot < slot_count_ && slots.size() < count; ++slot) {
      if (taken_[slot]) continue;
      taken_[slot] = true;
      slots.push_back(slot);
    }
    return slots;
  }
  void give(const std::vector<std::uint32_t>& slots) {
    for (const std::uint32_t slot : slots) taken_[slot] = false;
  }
  // From the host, at once. REQUIRES: nothing enqueued uses these slots.
  void scribble(const std::vector<std::uint32_t>& slots) {
    for (const std::uint32_t slot : slots) {
      for (const PoolRegion& region : regions_) std::memset(data(region, slot), 0xdd, region.bytes);
    }
  }

 private:
  const Layout& layout_;
  const std::uint32_t slot_count_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<PoolRegion> regions_;
  std::vector<bool> taken_;
};

}  // namespace terrace::sim
