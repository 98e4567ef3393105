#include "nvme/our_loop.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <stdexcept>

namespace terrace::bench {
namespace {

using internal::BlockId;
using internal::Transfer;
using Step = Transfer::Step;

constexpr std::uint32_t kReadAhead = 32;  // as lib/move/fetch.cpp

internal::BlockStore::Sizes sizes_of(const internal::Tiers& tiers) {
  return {{0, tiers.dram.slot_count, tiers.nvme->slot_count()}, {}, tiers.layout.block_tokens};
}

}  // namespace

OurLoop::OurLoop(internal::Tiers& tiers)
    : tiers_(tiers),
      store_(sizes_of(tiers),
             make_lru_policy(internal::BlockStore::table_capacity(sizes_of(tiers))), time_, 1) {
  if (!waker_.open()) throw std::runtime_error("no event descriptor");
  std::mt19937_64 random(1);
  // Bytes that no drive finds easy, for what is written before anything was read.
  const std::span<std::byte> arena = tiers.dram.memory.bytes();
  for (std::size_t at = 0; at + 8 <= arena.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(arena.data() + at, &word, sizeof word);
  }
  store_.pool(kNvme0).adopt([](std::uint32_t) { return true; });
  tokens_.resize(tiers.layout.block_tokens);
  for (std::uint32_t slot = 0; slot < tiers.nvme->slot_count(); ++slot) {
    tokens_[0] = slot;
    internal::RecordMeta meta;
    meta.tokens = tokens_;
    meta.self = chain_next(meta.parent, meta.tokens);
    if (store_.insert(meta, internal::kNoBlock) != slot)
      throw std::logic_error("the block table does not fill from its first block on");
    store_.recover(slot, kNvme0, slot);
  }
  // The first blocks take the slots of DRAM; whoever comes next takes that of the coldest one.
  for (std::uint32_t i = 0; i < tiers.dram.slot_count; ++i) {
    if (!store_.begin_landing(i, kDram0, internal::Loss::refused))
      throw std::logic_error("DRAM has fewer slots than it says");
    store_.finish_landing(i, kDram0);
    const std::uint32_t slot = store_.at(i, kDram0).slot;
    memory_.push_back(tiers.dram.record(slot).data());
    in_dram_.push_back(i);
    if (slot != i) throw std::logic_error("DRAM does not fill from its first slot on");
  }
}

void OurLoop::prepare(Work work, std::uint32_t depth, std::uint32_t run_blocks) {
  const bool writes = work == Work::write || work == Work::write_unsealed;
  const bool hashes = work == Work::write || work == Work::read_verified;
  transfers_.emplace(store_, tiers_, clock_, depth, hashes);
  // Requests for single blocks end in any order, and so do their slots. A cache has whole chains in
  // order: whoever used one has touched it.
  std::vector<BlockId> chain(in_dram_.rbegin(), in_dram_.rend());
  std::erase_if(chain,
                [this](BlockId id) { return store_.state(id, kDram0) != BlockState::resident; });
  store_.touch_chain(chain);
  step_ = writes ? Step::writing : Step::reading;
  run_blocks_ = run_blocks;
  started_max_ = 2 * depth * run_blocks;
}

void OurLoop::run(std::span<const std::uint32_t> first_slots) {
  first_slots_ = first_slots;
  started_ = 0;
  next_ = 0;
  ended_ = 0;
  while (ended_ < first_slots.size() * run_blocks_) {  // as Core::poll()
    bool moved = transfers_->reap();
    time_.look();
    moved |= transfers_->take_ended([this](std::uint32_t index) { end(index); });
    moved |= start_some();
    transfers_->hand_over();
    moved |= transfers_->submit();
    if (!moved) waker_.wait(transfers_->devices(), std::chrono::seconds(1));
  }
}

// Whole runs, as many as the transfers take.
bool OurLoop::start_some() {
  const std::size_t before = next_;
  while (next_ < first_slots_.size() && started_ + run_blocks_ <= started_max_) {
    if (transfers_->free() < run_blocks_) break;
    if (step_ == Step::writing && transfers_->writes_free() < run_blocks_) break;
    start_run(first_slots_[next_++]);
  }
  warm();
  return next_ > before;
}

// As Mover::issue_reads(): what comes next.
void OurLoop::warm() const {
  const std::size_t runs = std::min<std::size_t>((kReadAhead + run_blocks_ - 1) / run_blocks_,
                                                 first_slots_.size() - next_);
  for (const std::uint32_t first : first_slots_.subspan(next_, runs)) {
    for (std::uint32_t i = 0; i < run_blocks_; ++i) store_.table().prefetch_move(first + i);
  }
}

void OurLoop::start_run(std::uint32_t first_slot) {
  slots_.clear();
  for (BlockId block = first_slot; block < first_slot + run_blocks_; ++block) {
    // What is read is in DRAM only where the file is small.
    if (store_.state(block, kDram0) == BlockState::resident) store_.evict(block, kDram0);
    slots_.push_back(store_.acquire_slot(kDram0, internal::Loss::allowed));
    if (slots_.back() == internal::kNoSlot) throw std::logic_error("all of DRAM is on its way");
  }
  std::ranges::sort(slots_);  // as the mover
  for (std::uint32_t i = 0; i < run_blocks_; ++i) start(first_slot + i, slots_[i]);
}

void OurLoop::start(BlockId block, std::uint32_t slot) {
  store_.attach(block, kDram0, slot);
  in_dram_[slot] = block;
  if (step_ == Step::writing) {  // what lies there is its payload, whatever it is
    store_.finish_landing(block, kDram0);
    store_.pin(block, kDram0);
  }
  store_.pin(block, kNvme0);
  transfers_->start(step_, block);
  ++started_;
}

void OurLoop::end(std::uint32_t index) {
  const Transfer transfer = (*transfers_)[index];
  if (!transfer.ok()) {
    throw std::runtime_error(transfer.os_error != 0 ? std::strerror(transfer.os_error)
                                                    : to_string(transfer.verdict));
  }
  transfers_->finish(index);
  if (step_ == Step::writing) {
    store_.unpin(transfer.block, kDram0);
  } else {
    store_.finish_landing(transfer.block, kDram0);
  }
  store_.unpin(transfer.block, kNvme0);
  --started_;
  ++ended_;
}

}  // namespace terrace::bench
