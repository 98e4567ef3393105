// See found_records.hpp.
#include "tier/found_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace terrace::internal {
namespace {

struct LineageHash {
  std::size_t operator()(const Digest& digest) const noexcept {
    std::size_t value;
    std::memcpy(&value, digest.data(), sizeof value);  // a SHA-256 is uniform already
    return value;
  }
};

}  // namespace

bool FoundRecords::add(std::uint32_t slot, std::span<const std::byte> header) {
  RecordMeta meta;
  const Verdict verdict = format_.parse(header, meta);
  if (verdict != Verdict::good) {
    if (verdict != Verdict::not_a_record) ++refused_[verdict];
    return false;
  }
  entries_.push_back({meta, slot, tokens_.size()});
  tokens_.insert(tokens_.end(), meta.tokens.begin(), meta.tokens.end());
  return true;
}

void FoundRecords::forget_from(std::uint32_t slot) {
  std::erase_if(entries_, [slot](const Entry& entry) { return entry.slot >= slot; });
}

std::vector<std::uint32_t> FoundRecords::keep_newest() {
  std::ranges::sort(entries_, [](const Entry& a, const Entry& b) {
    return std::pair(a.meta.sequence, a.slot) < std::pair(b.meta.sequence, b.slot);
  });
  std::unordered_set<Digest, LineageHash> seen;
  std::vector<std::uint32_t> older;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    entry->newest = seen.insert(entry->meta.self.lineage).second;
    if (!entry->newest) older.push_back(entry->slot);
  }
  return older;
}

void FoundRecords::visit(const Visitor& visit) {
  for (Entry& entry : entries_) {
    entry.meta.tokens = std::span(tokens_).subspan(entry.first_token, entry.meta.tokens.size());
    if (entry.newest) visit(entry.slot, entry.meta);
  }
}

std::string FoundRecords::refusals() const {
  std::string text;
  for (const auto& [verdict, count] : refused_)
    text += fmt::format(" {} {}", count, to_string(verdict));
  return text;
}

}  // namespace terrace::internal
