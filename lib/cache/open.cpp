// Opening a cache: options checked, arenas reserved, directory recovered.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "cache/core.hpp"
#include "cache/recovery.hpp"
#include "io/system_clock.hpp"

namespace terrace::internal {
namespace {

constexpr std::uint32_t kRecordAlignment = 4096;  // O_DIRECT on any sector size in use
constexpr std::uint32_t kHbmAlignment = 256;      // what coalesced loads and tensor copies like
constexpr std::uint32_t kDramBlocksMin =
    8;  // below an NVMe tier: reads and writes in flight need somewhere to be

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

Result<void> check(const Options& options) {
  if (options.hbm_bytes == 0 && options.dram_bytes == 0) {
    return fail(Code::invalid_argument, "no tier to keep blocks in: set hbm_bytes or dram_bytes");
  }
  if (options.nvme_paths.empty() != (options.nvme_bytes == 0)) {
    return fail(Code::invalid_argument, "an NVMe tier needs both nvme_paths and nvme_bytes");
  }
  if (options.nvme_write_bytes_per_day > 0 && options.nvme_paths.empty()) {
    return fail(Code::invalid_argument, "nvme_write_bytes_per_day needs an NVMe tier");
  }
  if (options.io_queue_depth == 0 || options.io_queue_depth > 4096) {
    return fail(Code::invalid_argument, "io_queue_depth must be from 1 to 4096");
  }
  if (options.fetches_max == 0 || options.layer_copy_bytes == 0) {
    return fail(Code::invalid_argument, "fetches_max and layer_copy_bytes must not be 0");
  }
  return {};
}

std::uint64_t random_incarnation() {
  std::random_device source;
  return (std::uint64_t{source()} << 32) | source();
}

}  // namespace

Result<std::shared_ptr<Core>> Core::open(Options options, Layout layout, const CoreSeams& seams) {
  if (auto checked = check(options); !checked) return unexpected(checked.error());
  if (auto valid = layout.validate(); !valid) return unexpected(valid.error());
  if (options.device == nullptr) options.device = make_host_copy_engine();
  if (options.clock == nullptr) options.clock = std::make_shared<SystemClock>();
  if (!options.eviction) options.eviction = make_lru_policy;

  std::shared_ptr<Core> core(new Core(std::move(options)));
  if (auto opened = core->open_tiers(std::move(layout), seams); !opened)
    return unexpected(opened.error());
  if (core->options_.driver_thread)
    core->driver_ = std::thread([raw = core.get()] { raw->drive(); });
  return core;
}

Result<void> Core::open_tiers(Layout layout, const CoreSeams& seams) {
  tiers_ = std::make_unique<Tiers>(std::move(layout), kRecordAlignment);
  if (auto opened = waker_.open(); !opened) return opened;
  HbmTier& hbm = tiers_->hbm;
  hbm.stride_bytes = round_up(tiers_->layout.block_bytes(), kHbmAlignment);
  hbm.slot_count = static_cast<std::uint32_t>(options_.hbm_bytes / hbm.stride_bytes);
  if (options_.hbm_bytes > 0 && hbm.slot_count == 0) {
    return fail(Code::invalid_argument,
                "hbm_bytes has no room for one block: raise it, or lower block_tokens");
  }
  if (hbm.slot_count > 0) {
    auto arena = options_.device->allocate(hbm.slot_count * hbm.stride_bytes);
    if (!arena) return unexpected(arena.error());
    hbm.base = *arena;
    prefault_hbm();
  }
  if (auto opened = open_dram(); !opened) return opened;
  if (auto opened = open_nvme(seams); !opened) return opened;

  const std::uint32_t nvme_slots = tiers_->nvme == nullptr ? 0 : tiers_->nvme->slot_count();
  BlockStore::Sizes sizes{
      {hbm.slot_count, tiers_->dram.slot_count, nvme_slots}, {}, tiers_->layout.block_tokens};
  if (tiers_->nvme != nullptr) sizes.nvme_drives = tiers_->nvme->slots_by_drive();
  store_ = std::make_unique<BlockStore>(
      sizes, options_.eviction(BlockStore::table_capacity(sizes)), time_,
      seams.incarnation != 0 ? seams.incarnation : random_incarnation());
  auto mover =
      std::make_unique<Mover>(*store_, *tiers_, *options_.device, *options_.clock, options_);
  if (auto opened = mover->open(); !opened) return opened;
  mover_ = std::move(mover);
  return recover_nvme();
}

// A host device gives memory that nobody has touched; a real one has its own.
void Core::prefault_hbm() {
  if (!options_.prefault || options_.device->name() != "host") return;
  const HbmTier& hbm = tiers_->hbm;
  prefault({hbm.base, hbm.slot_count * hbm.stride_bytes},
           [this](std::size_t done, std::size_t total) {
             if (options_.progress) options_.progress("prefault HBM", done, total);
           });
}

Result<void> Core::open_dram() {
  DramTier& dram = tiers_->dram;
  dram.stride_bytes = tiers_->format.record_bytes();
  dram.payload_offset = tiers_->format.header_bytes();
  dram.slot_count = static_cast<std::uint32_t>(options_.dram_bytes / dram.stride_bytes);
  if (options_.dram_bytes > 0 && dram.slot_count == 0) {
    return fail(Code::invalid_argument,
                "dram_bytes has no room for one block: raise it, or lower block_tokens");
  }
  if (dram.slot_count == 0) return {};
  HostMemory::Options how;
  how.huge_pages = options_.huge_pages;
  how.prefault = options_.prefault;
  how.progress = [this](std::size_t done, std::size_t total) {
    if (options_.progress) options_.progress("prefault DRAM", done, total);
  };
  auto memory = HostMemory::allocate(dram.slot_count * dram.stride_bytes, how);
  if (!memory) return unexpected(memory.error());
  dram.memory = std::move(*memory);
  if (!options_.pin_dram) return {};
  const auto pinned = options_.device->pin(dram.memory.bytes().data(), dram.memory.bytes().size());
  dram.pinned = pinned.has_value();
  if (!pinned) {
    log(LogLevel::info,
        fmt::format("DRAM arena is not page-locked ({}): copies use pageable memory",
                    pinned.error().message)
            .c_str());
  }
  return {};
}

Result<void> Core::open_nvme(const CoreSeams& seams) {
  if (options_.nvme_paths.empty()) return {};
  if (tiers_->dram.slot_count < kDramBlocksMin) {
    return fail(Code::invalid_argument,
                "an NVMe tier needs dram_bytes for at least 8 blocks: raise dram_bytes");
  }
  NvmeStoreOptions how;
  how.bytes_max = options_.nvme_bytes;
  how.queue_depth_max = options_.io_queue_depth;
  how.buffers = tiers_->dram.memory.bytes();
  how.io_uring = options_.io_uring;
  how.direct = options_.direct_io;
  how.block_device = options_.block_device;
  how.slot_index = seams.slot_index;
  how.progress = [this](const char* step, std::uint64_t done, std::uint64_t total) {
    if (options_.progress) options_.progress(step, done, total);
  };
  how.log = [this](const std::string& line) { log(LogLevel::info, line.c_str()); };
  auto opened = NvmeTier::open(options_.nvme_paths, how, tiers_->layout, tiers_->format);
  if (!opened) return unexpected(opened.error());
  tiers_->nvme = std::move(*opened);
  const BlockDeviceFacts facts = tiers_->nvme->facts().device;
  if (options_.io_uring && !facts.io_uring)
    log(LogLevel::warning, "io_uring is not to be had: NVMe uses plain file I/O");
  if (options_.direct_io && !facts.direct)
    log(LogLevel::warning, "O_DIRECT is not to be had: NVMe goes through the page cache");
  return {};
}

Result<void> Core::recover_nvme() {
  if (tiers_->nvme == nullptr) return {};
  Recovery recovery(*store_);
  if (auto found = tiers_->nvme->find(recovery); !found) return found;
  time_.look();  // after a scan, perhaps of minutes
  tiers_->nvme->settle(recovery.finish());
  const bool warm = store_->stats().recovered_blocks > 0;
  mover_->resume(std::max(tiers_->nvme->sequence_min(), recovery.sequence_max() + 1), warm);
  log(LogLevel::info,
      fmt::format("NVMe: {} blocks recovered", store_->stats().recovered_blocks).c_str());
  return {};
}

void Core::log(LogLevel level, const char* text) const {
  if (options_.log) options_.log(level, text);
}

}  // namespace terrace::internal
