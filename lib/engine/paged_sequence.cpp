#include "engine/paged_sequence.hpp"

#include <cassert>

namespace terrace::engine {

PagedSequence::PagedSequence(const Cache& cache, const Model& model, ReadLease prefix)
    : cache_(cache),
      model_(model),
      block_tokens_(cache.layout().block_tokens),
      prefix_(std::move(prefix)) {
  for (const Slot slot : prefix_.slots()) blocks_.push_back(cache_.data(slot));
}

Result<void> PagedSequence::reserve(std::uint32_t tokens) {
  const std::uint32_t needed = (tokens + block_tokens_ - 1) / block_tokens_;
  const auto held = static_cast<std::uint32_t>(blocks_.size());
  if (needed <= held) return {};
  assert(fresh_.slots().empty());
  auto lease = model_.reserve(prefix_, needed - held);
  if (!lease) return unexpected(lease.error());
  fresh_ = std::move(*lease);
  for (const Slot slot : fresh_.slots()) blocks_.push_back(cache_.data(slot));
  return {};
}

Result<void> PagedSequence::commit(std::span<const TokenId> computed) {
  const std::size_t done = prefix_.slots().size() * block_tokens_;
  const std::size_t whole = computed.size() / block_tokens_ * block_tokens_;
  if (whole <= done) return {};
  // The CPU computes in place: what it has written is complete, and there is no stream to wait for.
  constexpr StreamPoint kNow{};
  const auto result = model_.commit(fresh_, computed.subspan(done, whole - done), kNow, prefix_);
  if (!result) return unexpected(result.error());
  return {};
}

}  // namespace terrace::engine
