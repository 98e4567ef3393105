// The tiers: each is a pool of slots (kept by the block store) and the memory or device behind it.
// They know where the bytes of a slot are; who is in a slot, and who leaves, is not theirs to know.
// Thread rule: addresses from any thread; the NVMe store belongs to the pump.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "index/record.hpp"
#include "io/host_memory.hpp"
#include "terrace/io.hpp"
#include "terrace/layout.hpp"
#include "tier/nvme_tier.hpp"

namespace terrace::internal {

// Slots of device memory; a slot is the KV of one block, in the layout's order at rest.
struct HbmTier {
  std::byte* base = nullptr;
  std::uint64_t stride_bytes = 0;
  std::uint32_t slot_count = 0;

  std::byte* data(std::uint32_t slot) const noexcept { return base + slot * stride_bytes; }
};

// Slots of host memory; a slot is a whole record, so that it is written to and read from NVMe where
// it lies.
struct DramTier {
  HostMemory memory;
  std::uint64_t stride_bytes = 0;
  std::uint32_t slot_count = 0;
  std::uint32_t payload_offset = 0;
  bool pinned = false;

  std::span<std::byte> record(std::uint32_t slot) const noexcept {
    return memory.bytes().subspan(slot * stride_bytes, stride_bytes);
  }
  std::byte* payload(std::uint32_t slot) const noexcept {
    return record(slot).data() + payload_offset;
  }
};

struct Tiers {
  Tiers(Layout block_layout, std::uint32_t alignment)
      : layout(std::move(block_layout)), format(layout, alignment) {}

  Layout layout;
  RecordFormat format;
  HbmTier hbm;
  DramTier dram;
  std::unique_ptr<NvmeTier> nvme;  // null: no such tier
};

}  // namespace terrace::internal
