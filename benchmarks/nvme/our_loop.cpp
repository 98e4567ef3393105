#include "nvme/our_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <stdexcept>

#include "terrace/units.hpp"

namespace terrace::bench {

using internal::RecordMeta;
using internal::Verdict;

Blocks::Blocks(const Layout& layout, std::uint32_t count)
    : tokens_(std::size_t{count} * layout.block_tokens), metas_(count) {
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    tokens_[i] = static_cast<TokenId>(i * 2654435761);
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    RecordMeta& meta = metas_[slot];
    meta.tokens =
        std::span(tokens_).subspan(std::size_t{slot} * layout.block_tokens, layout.block_tokens);
    meta.self = chain_next(meta.parent, meta.tokens);
    meta.sequence = slot;
  }
}

OurLoop::OurLoop(internal::NvmeStore& store, const internal::RecordFormat& format,
                 const Blocks& blocks, std::span<std::byte> arena)
    : store_(store), format_(format), blocks_(blocks) {
  if (!waker_.open()) throw std::runtime_error("no event descriptor");
  // Bytes that no device finds easy, for what is written before anything was read.
  std::mt19937_64 random(1);
  for (std::size_t at = 0; at + 8 <= arena.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(arena.data() + at, &word, sizeof word);
  }
  for (std::size_t at = 0; at + format.record_bytes() <= arena.size(); at += format.record_bytes())
    arena_.push_back(arena.data() + at);
  std::ranges::shuffle(arena_, random);
}

void OurLoop::run(Work work, std::span<const std::uint32_t> first_slots, std::uint32_t depth,
                  std::uint32_t run_blocks) {
  work_ = work;
  first_slots_ = first_slots;
  next_ = 0;
  make_lanes(2 * depth, run_blocks);
  for (std::size_t done = 0; done < first_slots.size();) {
    submit(depth);
    const std::size_t reaped = reap();
    if (reaped == 0) {
      const int fd = store_.device().wait_fd();
      waker_.wait({&fd, fd >= 0 ? std::size_t{1} : 0}, std::chrono::seconds(1));
      continue;
    }
    submit(depth);  // the drive goes on while this thread hashes
    for (const std::uint32_t lane : completed_) retire(lane);
    free_.insert(free_.end(), completed_.begin(), completed_.end());
    done += reaped;
  }
}

void OurLoop::make_lanes(std::uint32_t count, std::uint32_t run_blocks) {
  if (std::size_t{count} * run_blocks > arena_.size()) throw std::logic_error("arena too small");
  lanes_.assign(count, {});
  free_.clear();
  for (std::uint32_t lane = 0; lane < count; ++lane) {
    const auto first = arena_.begin() + std::ptrdiff_t{lane} * run_blocks;
    lanes_[lane].records.assign(first, first + run_blocks);
    free_.push_back(lane);
  }
  // Reserved, so that a request's further pieces do not move while others are added.
  pieces_.reserve(std::size_t{count} * run_blocks);
}

void OurLoop::submit(std::uint32_t depth) {
  do {
    fill_portion(depth);
    if (!requests_.empty() && store_.device().submit(requests_) != requests_.size())
      throw std::runtime_error("the device takes fewer requests than it was opened for");
  } while (!requests_.empty());
}

// In portions, as the mover: the drive works on one while the next is sealed.
void OurLoop::fill_portion(std::uint32_t depth) {
  requests_.clear();
  pieces_.clear();
  std::size_t room = depth - store_.device().in_flight();
  std::uint64_t sealed_bytes = 0;
  for (; room > 0 && !free_.empty() && next_ < first_slots_.size() && sealed_bytes < MiB; --room) {
    const std::uint32_t lane = free_.front();
    free_.pop_front();
    lanes_[lane].first_slot = first_slots_[next_++];
    requests_.push_back(request_of(lane));
    if (work_ == Work::write) sealed_bytes += format_.record_bytes() * lanes_[lane].records.size();
  }
}

IoRequest OurLoop::request_of(std::uint32_t index) {
  const Lane& lane = lanes_[index];
  const auto bytes = static_cast<std::uint32_t>(format_.record_bytes());
  const std::size_t from = pieces_.size();
  for (std::uint32_t i = 0; i < lane.records.size(); ++i) {
    if (work_ == Work::write) format_.seal({lane.records[i], bytes}, blocks_[lane.first_slot + i]);
    if (i > 0) pieces_.push_back({lane.records[i], bytes});
  }
  return {.kind = writes() ? IoRequest::Kind::write : IoRequest::Kind::read,
          .offset = store_.slot_offset(lane.first_slot),
          .data = lane.records[0],
          .bytes = bytes,
          .user_data = index,
          .more = std::span(pieces_).subspan(from)};
}

std::size_t OurLoop::reap() {
  std::array<IoResult, 64> results;
  const std::size_t count = store_.device().reap(results);
  completed_.clear();
  for (const IoResult& result : std::span(results).first(count)) {
    if (result.os_error != 0)
      throw std::runtime_error(fmt::format("a request failed: {}", std::strerror(result.os_error)));
    completed_.push_back(static_cast<std::uint32_t>(result.user_data));
  }
  return count;
}

void OurLoop::retire(std::uint32_t index) const {
  if (work_ != Work::read_verified) return;
  const Lane& lane = lanes_[index];
  for (std::uint32_t i = 0; i < lane.records.size(); ++i) {
    const std::uint32_t slot = lane.first_slot + i;
    const Verdict verdict =
        format_.verify({lane.records[i], format_.record_bytes()}, blocks_[slot]);
    if (verdict != Verdict::good)
      throw std::runtime_error(fmt::format("slot {}: {}", slot, to_string(verdict)));
  }
}

}  // namespace terrace::bench
