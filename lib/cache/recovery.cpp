// See recovery.hpp.
#include "cache/recovery.hpp"

#include <algorithm>

namespace terrace::internal {
namespace {

constexpr std::size_t kAhead = 32;  // memory that is on its way while an entry is worked on

}  // namespace

void Recovery::add(std::uint32_t slot, const RecordMeta& meta) {
  sequence_max_ = std::max(sequence_max_, meta.sequence);
  const BlockTable& table = store_.table();
  BlockId id = table.find(meta.self.key, meta.parent.lineage, meta.tokens);
  if (id == kNoBlock && table.takes(meta)) id = store_.insert(meta, kNoBlock);
  if (id == kNoBlock) {
    useless_.push_back(slot);
  } else {
    entries_.push_back({meta.sequence, id, slot});
  }
}

void Recovery::forget_from(std::uint32_t slot) {
  const auto gone = [slot](const Entry& entry) { return entry.slot >= slot; };
  std::vector<bool> stays(store_.table().capacity(), false);
  for (const Entry& entry : entries_) {
    if (!gone(entry)) stays[entry.block] = true;
  }
  for (const Entry& entry : entries_) {
    if (stays[entry.block]) continue;
    stays[entry.block] = true;  // erased once
    store_.drop_if_gone(entry.block);
  }
  std::erase_if(entries_, gone);
  std::erase_if(useless_, [slot](std::uint32_t useless) { return useless >= slot; });
}

std::vector<std::uint32_t> Recovery::finish() {
  const auto older = [](const Entry& a, const Entry& b) { return a.sequence < b.sequence; };
  if (!std::ranges::is_sorted(entries_, older)) std::ranges::sort(entries_, older);
  drop_older();
  std::vector<bool> used(store_.pool(kNvme0).capacity(), false);
  for (const Entry& entry : entries_) used[entry.slot] = true;
  store_.pool(kNvme0).adopt([&used](std::uint32_t slot) { return used[slot]; });
  BlockTable& table = store_.table();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (i + 2 * kAhead < entries_.size()) table.prefetch_lineage(entries_[i + 2 * kAhead].block);
    if (i + kAhead < entries_.size()) table.prefetch_parent(entries_[i + kAhead].block);
    const BlockId id = entries_[i].block;
    const BlockId parent = table.find_parent(id);
    if (parent != kNoBlock) table.link(parent, id);
    store_.recover(id, kNvme0, entries_[i].slot);
  }
  return std::move(useless_);
}

// Of the records of one block the newest stays: entries are in the order in which they were written.
void Recovery::drop_older() {
  std::vector<bool> seen(store_.table().capacity(), false);
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (!seen[entry->block]) {
      seen[entry->block] = true;
      continue;
    }
    useless_.push_back(entry->slot);
    entry->block = kNoBlock;
  }
  std::erase_if(entries_, [](const Entry& entry) { return entry.block == kNoBlock; });
}

}  // namespace terrace::internal
