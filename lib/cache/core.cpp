// Match, reserve, commit, fetch and store: bookkeeping under the lock. The mover does the rest.
#include "cache/core.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace terrace::internal {
namespace {

// The place a block is best taken from. Returns: kNowhere where it has no usable copy.
PlaceId best_place(const Block& block) {
  const auto in = [&block](PlaceId place, BlockState state) {
    return block.at[place].state == state;
  };
  for (const PlaceId place : {kHbm0, kDram0}) {
    if (in(place, BlockState::resident) || in(place, BlockState::landing)) return place;
  }
  return in(kNvme0, BlockState::resident) ? kNvme0 : kNowhere;
}

Availability availability(const Block& block, PlaceId place) {
  if (block.at[place].state == BlockState::landing) return Availability::in_flight;
  return place == kHbm0 ? Availability::resident : Availability::fetchable;
}

void extend_runs(std::vector<MatchRun>& runs, std::uint32_t index, Availability what,
                 PlaceId place) {
  if (!runs.empty() && runs.back().availability == what && runs.back().place == place) {
    ++runs.back().block_count;
  } else {
    runs.push_back({what, place, index, 1});
  }
}

void append_keys(const ChainPoint& root, std::span<const TokenId> tokens, std::size_t block_tokens,
                 std::vector<BlockKey>& keys) {
  keys.reserve(tokens.size() / block_tokens);
  BlockKey key = root.key;
  for (std::size_t at = 0; at < tokens.size(); at += block_tokens) {
    key = block_key(key, tokens.subspan(at, block_tokens));
    keys.push_back(key);
  }
}

// The chain over `tokens` after `tip`: point 0 is `tip`, point i + 1 the end of block i.
// It hashes, so it is not called under the lock.
void append_chain(const ChainPoint& tip, std::span<const TokenId> tokens, std::size_t block_tokens,
                  std::vector<ChainPoint>& chain) {
  chain.reserve(tokens.size() / block_tokens + 1);
  chain.push_back(tip);
  for (std::size_t at = 0; at < tokens.size(); at += block_tokens) {
    chain.push_back(chain_next(chain.back(), tokens.subspan(at, block_tokens)));
  }
}

constexpr Error kClosed{Code::closed, 0, "the cache is closed"};

}  // namespace

// ---- Match.

Result<Match> Core::match(const ChainPoint& root, std::span<const TokenId> prompt) {
  if (closed_) return unexpected(kClosed);
  Match match;
  match.core_ = shared_from_this();
  match.blocks_ = spares_.blocks.take();
  match.found_at_ = spares_.places.take();
  match.runs_ = spares_.runs.take();
  match.prefix_ = Prefix{root, root, 0};
  match.prompt_tokens_ = static_cast<std::uint32_t>(prompt.size());
  // At most prompt - 1 tokens: the last one is computed, for its logits.
  const std::size_t blocks = prompt.empty() ? 0 : (prompt.size() - 1) / block_tokens();
  prompt = prompt.first(blocks * block_tokens());
  SpareVectors<BlockKey>::Loan keys(spares_.keys);
  if (mover_->counts_requests()) append_keys(root, prompt, block_tokens(), *keys);
  const Locked guard(*this);
  mover_->saw(*keys);
  walk(match, prompt);
  return match;
}

void Core::walk(Match& match, std::span<const TokenId> tokens) {
  BlockTable& table = store_->table();
  table.find_chain(match.prefix_.tip, tokens, [&](std::size_t i, BlockId id) {
    const PlaceId place = best_place(table[id]);
    if (place == kNowhere) return false;
    store_->pin(id, place);
    match.blocks_.push_back(id);
    match.found_at_.push_back(place);
    extend_runs(match.runs_, static_cast<std::uint32_t>(i), availability(table[id], place), place);
    return true;
  });
  match.prefix_.blocks = static_cast<std::uint32_t>(match.blocks_.size());
  if (!match.blocks_.empty()) match.prefix_.tip = table[match.blocks_.back()].self();
  match.token_count_ = static_cast<std::uint32_t>(match.blocks_.size() * block_tokens());
}

// ---- Fetch.

Result<void> Core::fetch(Match& match, FetchOp& op, const OperationOptions& options) {
  if (tiers_->hbm.slot_count == 0) {
    return fail(Code::invalid_argument,
                "the cache has no own arena: set hbm_bytes, or fetch into a registered pool");
  }
  const Locked guard(*this);
  return start_fetch(match, op, options, nullptr, {});
}

Result<void> Core::fetch_to_pool(Match& match, PoolId pool, std::span<const std::uint32_t> slots,
                                 StreamPoint after, FetchOp& op, const OperationOptions& options) {
  const Locked guard(*this);
  if (pool.index >= mover_->pools().size() || mover_->pools()[pool.index].regions.empty()) {
    return fail(Code::invalid_argument, "no such pool: register_pool() first");
  }
  const std::uint32_t slot_count = mover_->pools()[pool.index].slot_count;
  if (slots.size() < match.blocks_.size() ||
      std::ranges::any_of(slots, [&](auto slot) { return slot >= slot_count; })) {
    return fail(Code::invalid_argument, "fetch needs one slot of the pool for each matched block");
  }
  if (auto waits = mover_->loads_wait(after); !waits) return waits;
  return start_fetch(match, op, options, &pool, slots);
}

Result<void> Core::start_fetch(Match& match, FetchOp& op, const OperationOptions& options,
                               const PoolId* pool, std::span<const std::uint32_t> slots) {
  if (closed_) return unexpected(kClosed);
  TERRACE_ASSERT(op.state_ == nullptr, 0);
  TERRACE_ASSERT(match.core_.get() == this, 0);
  FetchState* state = mover_->new_fetch();
  if (state == nullptr)
    return fail(Code::retry_later, "fetches_max fetches are in progress: poll, and try again");
  state->user_data = options.user_data;
  if (options.deadline.count() > 0)
    state->deadline_ns = (options_.clock->now() + options.deadline).count();
  state->prompt_tokens = match.prompt_tokens_;
  state->prefix = match.prefix_;
  state->blocks.swap(match.blocks_);
  state->found_at.swap(match.found_at_);
  state->held.clear();
  for (const PlaceId place : state->found_at)
    state->held.push_back(static_cast<std::uint8_t>(1u << place));
  if (pool != nullptr) {
    state->to_pool = true;
    state->pool = pool->index;
    state->pool_slots.assign(slots.begin(), slots.end());
  }
  op.core_ = shared_from_this();
  op.state_ = state;
  give_back_lists(match);  // those that the state had
  match.core_.reset();
  mover_->start_fetch(*state);
  wake();
  return {};
}

ReadLease Core::take_lease(FetchOp& op) {
  FetchState& state = *op.state_;
  TERRACE_ASSERT(state.done.load(std::memory_order_acquire), 0);
  ReadLease lease;
  lease.core_ = shared_from_this();
  lease.slots_ = spares_.slots.take();
  lease.blocks_ = spares_.blocks.take();
  const Locked guard(*this);
  lease.prefix_ = state.prefix;
  lease.prefix_.blocks = state.usable;
  if (state.usable < state.blocks.size()) {
    lease.prefix_.tip = state.usable == 0 ? state.prefix.root
                                          : store_->table()[state.blocks[state.usable - 1]].self();
  }
  if (state.to_pool) return lease;
  for (std::uint32_t i = 0; i < state.usable; ++i) {
    TERRACE_ASSERT(state.held[i] == 1u << kHbm0, i);  // taken once
    state.held[i] = 0;
    const std::uint32_t slot = store_->at(state.blocks[i], kHbm0).slot;
    lease.slots_.push_back({slot, store_->pool(kHbm0).generation(slot)});
    lease.blocks_.push_back(state.blocks[i]);
  }
  return lease;
}

// ---- Reserve and commit.

Result<WriteLease> Core::reserve(std::uint32_t blocks) {
  if (closed_) return unexpected(kClosed);
  if (blocks > tiers_->hbm.slot_count) {
    return fail(Code::no_space,
                "more blocks than the arena has: raise hbm_bytes, or shorten the request");
  }
  WriteLease lease;
  lease.core_ = shared_from_this();
  lease.slots_ = spares_.slots.take();
  lease.slots_.reserve(blocks);
  const Locked guard(*this);
  for (std::uint32_t i = 0; i < blocks; ++i) {
    const std::uint32_t slot = store_->acquire_slot(kHbm0, Loss::allowed);
    if (slot == kNoSlot) {
      for (const Slot& taken : lease.slots_) store_->pool(kHbm0).release(taken.index);
      lease.slots_.clear();
      return fail(Code::no_space,
                  "every block of the arena is in use: release leases, poll, and try again");
    }
    lease.slots_.push_back({slot, store_->pool(kHbm0).generation(slot)});
  }
  return lease;
}

Result<CommitResult> Core::commit(WriteLease& lease, std::span<const TokenId> tokens,
                                  StreamPoint after, ReadLease& prefix) {
  if (closed_) return unexpected(kClosed);
  const std::size_t count = tokens.size() / block_tokens();
  if (tokens.size() % block_tokens() != 0)
    return fail(Code::invalid_argument, "commit takes whole blocks of tokens");
  if (count > lease.slots_.size())
    return fail(Code::invalid_argument, "more tokens than the lease has slots for");
  TERRACE_ASSERT(prefix.core_.get() == this && lease.core_.get() == this, 0);
  SpareVectors<ChainPoint>::Loan loan(spares_.chains);
  append_chain(prefix.prefix_.tip, tokens, block_tokens(), *loan);
  const std::span<const ChainPoint> chain = *loan;

  CommitResult result;
  const Locked guard(*this);
  Batch& batch = mover_->new_batch(after);
  BlockId parent = prefix.blocks_.empty() ? kNoBlock : prefix.blocks_.back();
  for (std::size_t i = 0; i < count; ++i) {
    const RecordMeta meta{.root = prefix.prefix_.root.lineage,
                          .self = chain[i + 1],
                          .parent = chain[i],
                          .depth = prefix.prefix_.blocks,
                          .tokens = tokens.subspan(i * block_tokens(), block_tokens())};
    store_->table().prefetch_turn(chain.subspan(1), i);
    BlockId id = store_->table().find(meta.self.key, meta.parent.lineage, meta.tokens);
    const bool duplicate = id != kNoBlock && store_->state(id, kHbm0) != BlockState::absent;
    if (id == kNoBlock) id = store_->insert(meta, parent);
    const bool publishes = id != kNoBlock && !duplicate;
    if (publishes) publish(id, lease.slots_[i].index, batch);
    ++(publishes ? result.published : duplicate ? result.duplicate : result.unpublished);
    prefix.slots_.push_back(lease.slots_[i]);
    prefix.blocks_.push_back(publishes ? id : kNoBlock);
    if (const std::size_t last = prefix.blocks_.size() - 1; last >= BlockTable::kAhead)
      store_->table().note_ahead(prefix.blocks_[last - BlockTable::kAhead], prefix.blocks_[last]);
    prefix.prefix_.tip = meta.self;
    ++prefix.prefix_.blocks;
    parent = id;
  }
  lease.slots_.erase(lease.slots_.begin(),
                     lease.slots_.begin() + static_cast<std::ptrdiff_t>(count));
  store_->stats().committed_blocks += result.published;
  store_->stats().duplicate_blocks += result.duplicate;
  mover_->start_batch(batch);
  wake();
  return result;
}

// The lease's slot becomes the block's copy in HBM: findable once the batch's point has passed.
void Core::publish(BlockId id, std::uint32_t slot, Batch& batch) {
  store_->attach(id, kHbm0, slot);  // the landing's pin
  store_->pin(id, kHbm0);           // the lease's
  batch.movements.push_back({id, kHbm0, kNowhere});
}

// ---- Store.

Result<void> Core::store(PoolId pool, std::span<const std::uint32_t> slots,
                         std::span<const TokenId> tokens, StreamPoint after, Prefix& prefix,
                         StoreOp& op, const OperationOptions& options) {
  if (closed_) return unexpected(kClosed);
  if (tiers_->dram.slot_count == 0)
    return fail(Code::invalid_argument, "store needs a DRAM tier: set dram_bytes");
  if (tokens.size() != slots.size() * block_tokens()) {
    return fail(Code::invalid_argument, "store takes block_tokens tokens for each slot");
  }
  SpareVectors<ChainPoint>::Loan loan(spares_.chains);
  append_chain(prefix.tip, tokens, block_tokens(), *loan);
  const std::span<const ChainPoint> chain = *loan;
  SpareVectors<Movement>::Loan movements_loan(spares_.movements);
  std::vector<Movement>& movements = *movements_loan;
  const Locked guard(*this);
  if (pool.index >= mover_->pools().size() || mover_->pools()[pool.index].regions.empty()) {
    return fail(Code::invalid_argument, "no such pool: register_pool() first");
  }
  const std::uint32_t slot_count = mover_->pools()[pool.index].slot_count;
  if (std::ranges::any_of(slots, [&](auto slot) { return slot >= slot_count; })) {
    return fail(Code::invalid_argument, "a slot is outside the pool");
  }
  TERRACE_ASSERT(op.state_ == nullptr, 0);
  StoreState* state = mover_->new_store();
  if (state == nullptr)
    return fail(Code::retry_later, "fetches_max stores are in progress: poll, and try again");
  state->user_data = options.user_data;
  state->pool = pool.index;

  Prefix at = prefix;
  BlockId parent = kNoBlock;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const RecordMeta meta{.root = at.root.lineage,
                          .self = chain[i + 1],
                          .parent = chain[i],
                          .depth = at.blocks,
                          .tokens = tokens.subspan(i * block_tokens(), block_tokens())};
    store_->table().prefetch_turn(chain.subspan(1), i);
    const std::optional<Movement> movement = land_in_dram(meta, parent);
    if (!movement) {
      state->reason = Code::no_space;
      state->complete = false;
      break;
    }
    movements.push_back(*movement);
    parent = movement->block;
    if (i >= BlockTable::kAhead)
      store_->table().note_ahead(movements[i - BlockTable::kAhead].block, parent);
    at.tip = meta.self;
    ++at.blocks;
    ++state->stored;
  }
  const auto started = mover_->copy_from_pool(
      mover_->pools()[pool.index], slots.first(movements.size()), movements, after, *state);
  if (!started) {
    for (const Movement& movement : movements) {
      if (movement.to != kNowhere) store_->fail_landing(movement.block, movement.to);
    }
    mover_->abandon_unstarted(*state);
    return started;
  }
  store_->stats().committed_blocks += static_cast<std::uint64_t>(std::ranges::count_if(
      movements, [](const Movement& movement) { return movement.to != kNowhere; }));
  op.core_ = shared_from_this();
  op.state_ = state;
  prefix = at;
  wake();
  return {};
}

// Returns: what has to be copied for this block, nothing (to == kNowhere) where DRAM or NVMe has
// it; no value: no room.
std::optional<Movement> Core::land_in_dram(const RecordMeta& meta, BlockId parent) {
  BlockId id = store_->table().find(meta.self.key, meta.parent.lineage, meta.tokens);
  if (id != kNoBlock && (store_->state(id, kDram0) != BlockState::absent ||
                         store_->state(id, kNvme0) == BlockState::resident)) {
    return Movement{id, kNowhere, kNowhere};
  }
  const std::uint32_t slot = store_->acquire_slot(kDram0, Loss::allowed);
  if (slot == kNoSlot) return std::nullopt;
  // Looked up again: the eviction may have erased it.
  id = store_->table().find(meta.self.key, meta.parent.lineage, meta.tokens);
  if (id == kNoBlock) id = store_->insert(meta, parent);
  if (id == kNoBlock) {
    store_->pool(kDram0).release(slot);
    return std::nullopt;
  }
  store_->attach(id, kDram0, slot);
  return Movement{id, kDram0, kNowhere};
}

// ---- Handles.

void Core::release(Match& match) noexcept {
  const Locked guard(*this);
  for (std::size_t i = 0; i < match.blocks_.size(); ++i)
    store_->unpin(match.blocks_[i], match.found_at_[i]);
  give_back_lists(match);
}

void Core::give_back_lists(Match& match) noexcept {
  spares_.blocks.give(std::move(match.blocks_));
  spares_.places.give(std::move(match.found_at_));
  spares_.runs.give(std::move(match.runs_));
}

void Core::release(ReadLease& lease, StreamPoint after) noexcept {
  const Locked guard(*this);
  store_->touch_chain(lease.blocks_);
  Batch& batch = mover_->new_batch(after);
  for (std::size_t i = 0; i < lease.slots_.size(); ++i) {
    if (lease.blocks_[i] == kNoBlock) {
      batch.free_slots.push_back(lease.slots_[i].index);
    } else {
      batch.movements.push_back({lease.blocks_[i], kNowhere, kHbm0});
    }
  }
  mover_->start_batch(batch);
  spares_.slots.give(std::move(lease.slots_));
  spares_.blocks.give(std::move(lease.blocks_));
}

void Core::release(WriteLease& lease, StreamPoint after) noexcept {
  const Locked guard(*this);
  Batch& batch = mover_->new_batch(after);
  for (const Slot& slot : lease.slots_) batch.free_slots.push_back(slot.index);
  mover_->start_batch(batch);
  spares_.slots.give(std::move(lease.slots_));
}

void Core::release(FetchOp& op) noexcept {
  const Locked guard(*this);
  mover_->abandon(*std::exchange(op.state_, nullptr));
}

void Core::release(StoreOp& op) noexcept {
  const Locked guard(*this);
  mover_->abandon(*std::exchange(op.state_, nullptr));
}

void Core::cancel(FetchOp& op) noexcept {
  const Locked guard(*this);
  mover_->cancel_fetch(*op.state_);
}

}  // namespace terrace::internal
