#include "tune/summary.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace terrace::tune {
namespace {

using internal::Verdict;

struct LineageHash {
  std::size_t operator()(const Digest& digest) const noexcept {
    std::size_t value;
    std::memcpy(&value, digest.data(), sizeof value);  // a SHA-256 is uniform already
    return value;
  }
};
using Lineages = std::unordered_set<Digest, LineageHash>;
using Blocks = std::vector<const Record*>;

// Counts records by verdict. Returns: one good record of each lineage, by depth.
Blocks sort_out(const std::vector<Record>& records, Summary& summary) {
  Blocks blocks;
  Lineages seen;
  for (const Record& record : records) {
    if (record.os_error != 0) {
      ++summary.unreadable;
    } else if (record.verdict != Verdict::good) {
      ++summary.refused[record.verdict];
    } else {
      ++summary.good;
      if (seen.insert(record.self.lineage).second) blocks.push_back(&record);
    }
  }
  summary.duplicates = summary.good - blocks.size();
  std::ranges::sort(blocks, {}, &Record::depth);
  return blocks;
}

void add_models(const Blocks& blocks, Summary& summary) {
  std::map<Digest, ModelSummary> models;
  for (const Record* block : blocks) {
    ModelSummary& model = models[block->root];
    model.root = block->root;
    ++model.blocks;
    model.tokens += block->tokens;
    summary.tokens += block->tokens;
  }
  for (const auto& [root, model] : models) summary.models.push_back(model);
  std::ranges::stable_sort(summary.models, std::greater(), &ModelSummary::blocks);
}

// Parents stand before their children: blocks are sorted by depth.
void add_chains(const Blocks& blocks, Summary& summary) {
  Lineages present;
  for (const Record* block : blocks) present.insert(block->self.lineage);
  Lineages reachable;
  for (const Record* block : blocks) {
    const bool first = block->depth == 0;
    summary.first_blocks += first;
    summary.orphans += !first && !present.contains(block->parent);
    if (first || reachable.contains(block->parent)) reachable.insert(block->self.lineage);
  }
  summary.unreachable = blocks.size() - reachable.size();
}

// The smallest depth that `percent` of the blocks do not exceed.
std::uint32_t depth_at(const Blocks& blocks, std::size_t percent) {
  return blocks[(blocks.size() * percent + 99) / 100 - 1]->depth;
}

}  // namespace

Summary summarise(const std::vector<Record>& records) {
  Summary summary;
  const Blocks blocks = sort_out(records, summary);
  if (blocks.empty()) return summary;
  add_models(blocks, summary);
  add_chains(blocks, summary);
  summary.depth_p50 = depth_at(blocks, 50);
  summary.depth_p90 = depth_at(blocks, 90);
  summary.depth_max = blocks.back()->depth;
  summary.sequence_min = ~std::uint64_t{0};
  for (const Record& record : records) {
    if (!record.good()) continue;
    summary.sequence_min = std::min(summary.sequence_min, record.sequence);
    summary.sequence_max = std::max(summary.sequence_max, record.sequence);
  }
  return summary;
}

}  // namespace terrace::tune
