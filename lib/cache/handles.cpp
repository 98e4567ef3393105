// The public handles: each forwards to the core, and gives back what it holds when it ends.
#include <utility>

#include "base/assert.hpp"
#include "cache/core.hpp"

namespace terrace {

using internal::Core;

const char* to_string(PlaceId place) noexcept {
  switch (place) {
    case kHbm0:
      return "hbm";
    case kDram0:
      return "dram";
    case kNvme0:
      return "nvme";
    default:
      return "unknown";
  }
}

const char* to_string(BlockState state) noexcept {
  switch (state) {
    case BlockState::absent:
      return "absent";
    case BlockState::landing:
      return "landing";
    case BlockState::resident:
      return "resident";
    case BlockState::quarantined:
      return "quarantined";
  }
  return "unknown";
}

// ---- Match.

Match::Match(Match&&) noexcept = default;

Match& Match::operator=(Match&& other) noexcept {
  Match moved(std::move(other));
  std::swap(core_, moved.core_);
  std::swap(prefix_, moved.prefix_);
  std::swap(token_count_, moved.token_count_);
  std::swap(prompt_tokens_, moved.prompt_tokens_);
  std::swap(runs_, moved.runs_);
  std::swap(blocks_, moved.blocks_);
  std::swap(found_at_, moved.found_at_);
  return *this;
}

Match::~Match() {
  if (core_ != nullptr) core_->release(*this);
}

// ---- Leases.

ReadLease::ReadLease(ReadLease&&) noexcept = default;

ReadLease& ReadLease::operator=(ReadLease&& other) noexcept {
  ReadLease moved(std::move(other));
  std::swap(core_, moved.core_);
  std::swap(prefix_, moved.prefix_);
  std::swap(slots_, moved.slots_);
  std::swap(blocks_, moved.blocks_);
  return *this;
}

ReadLease::~ReadLease() {
  release();
}

void ReadLease::release(StreamPoint after) {
  if (core_ == nullptr) return;
  core_->release(*this, after);
  core_.reset();
}

WriteLease::WriteLease(WriteLease&&) noexcept = default;

WriteLease& WriteLease::operator=(WriteLease&& other) noexcept {
  WriteLease moved(std::move(other));
  std::swap(core_, moved.core_);
  std::swap(slots_, moved.slots_);
  return *this;
}

WriteLease::~WriteLease() {
  release();
}

void WriteLease::release(StreamPoint after) {
  if (core_ == nullptr) return;
  core_->release(*this, after);
  core_.reset();
}

// ---- Operations.

FetchOp::FetchOp(FetchOp&& other) noexcept
    : core_(std::move(other.core_)), state_(std::exchange(other.state_, nullptr)) {}

FetchOp& FetchOp::operator=(FetchOp&& other) noexcept {
  FetchOp moved(std::move(other));
  std::swap(core_, moved.core_);
  std::swap(state_, moved.state_);
  return *this;
}

FetchOp::~FetchOp() {
  if (state_ != nullptr) core_->release(*this);
}

bool FetchOp::done() const noexcept {
  return state_ != nullptr && state_->done.load(std::memory_order_acquire);
}

std::uint64_t FetchOp::user_data() const noexcept {
  return state_ == nullptr ? 0 : state_->user_data;
}

std::uint32_t FetchOp::blocks_usable() const noexcept {
  TERRACE_ASSERT(done(), 0);
  return state_->usable;
}

std::span<const BlockResult> FetchOp::results() const noexcept {
  TERRACE_ASSERT(done(), 0);
  return state_->results;
}

ReadLease FetchOp::take_lease() {
  TERRACE_ASSERT(done(), 0);
  return core_->take_lease(*this);
}

StreamPoint FetchOp::layer_point(std::uint32_t layer) const noexcept {
  TERRACE_ASSERT(done(), 0);
  return core_->layer_point(*state_, layer);
}

Result<void> FetchOp::gate(std::uint32_t layer, StreamId stream) {
  return core_->device().wait(stream, layer_point(layer));
}

void FetchOp::cancel() noexcept {
  if (state_ != nullptr) core_->cancel(*this);
}

StoreOp::StoreOp(StoreOp&& other) noexcept
    : core_(std::move(other.core_)), state_(std::exchange(other.state_, nullptr)) {}

StoreOp& StoreOp::operator=(StoreOp&& other) noexcept {
  StoreOp moved(std::move(other));
  std::swap(core_, moved.core_);
  std::swap(state_, moved.state_);
  return *this;
}

StoreOp::~StoreOp() {
  if (state_ != nullptr) core_->release(*this);
}

bool StoreOp::done() const noexcept {
  return state_ != nullptr && state_->done.load(std::memory_order_acquire);
}

std::uint64_t StoreOp::user_data() const noexcept {
  return state_ == nullptr ? 0 : state_->user_data;
}

std::uint32_t StoreOp::blocks_stored() const noexcept {
  TERRACE_ASSERT(done(), 0);
  return state_->stored;
}

Result<void> StoreOp::status() const noexcept {
  TERRACE_ASSERT(done(), 0);
  if (state_->complete) return {};
  return state_->reason == Code::no_space
             ? fail(Code::no_space, "no room in DRAM for every block: poll, or raise dram_bytes")
             : fail(state_->reason, "the device could not copy the blocks");
}

// ---- Model.

Result<Match> Model::match(std::span<const TokenId> prompt, const Scope& scope) const {
  const auto at = root(scope);
  if (!at) return unexpected(at.error());
  return core_->match(at->root, prompt);
}

Result<void> Model::fetch(Match&& match, FetchOp& op, const OperationOptions& options) const {
  return core_->fetch(match, op, options);
}

Result<void> Model::fetch(Match&& match, PoolId pool, std::span<const std::uint32_t> slots,
                          StreamPoint after, FetchOp& op, const OperationOptions& options) const {
  return core_->fetch_to_pool(match, pool, slots, after, op, options);
}

Result<WriteLease> Model::reserve(const ReadLease& prefix, std::uint32_t blocks) const {
  TERRACE_ASSERT(prefix.valid(), 0);  // what was matched is pinned before its suffix takes room
  return core_->reserve(blocks);
}

Result<CommitResult> Model::commit(WriteLease& lease, std::span<const TokenId> tokens,
                                   StreamPoint after, ReadLease& prefix) const {
  return core_->commit(lease, tokens, after, prefix);
}

Result<void> Model::store(PoolId pool, std::span<const std::uint32_t> slots,
                          std::span<const TokenId> tokens, StreamPoint after, Prefix& prefix,
                          StoreOp& op, const OperationOptions& options) const {
  return core_->store(pool, slots, tokens, after, prefix, op, options);
}

Result<Prefix> Model::root(const Scope& scope) const {
  if (scope == Scope{}) return Prefix{root_, root_, 0};
  const auto root = chain_root(identity_, core_->tiers().layout, scope);
  if (!root) return unexpected(root.error());
  return Prefix{*root, *root, 0};
}

// ---- Cache.

Result<Cache> Cache::open(Options options, Layout layout) {
  auto core = Core::open(std::move(options), std::move(layout));
  if (!core) return unexpected(core.error());
  return internal::Core::handle(std::move(*core));
}

Cache internal::Core::handle(std::shared_ptr<Core> core) {
  Cache cache;
  cache.core_ = std::move(core);
  return cache;
}

Cache::Cache(Cache&&) noexcept = default;

Cache& Cache::operator=(Cache&& other) noexcept {
  Cache moved(std::move(other));
  std::swap(core_, moved.core_);
  return *this;
}

Cache::~Cache() {
  if (core_ != nullptr) (void)core_->close();
}

Result<Model> Cache::bind(const ModelIdentity& identity) const {
  const auto root = chain_root(identity, core_->tiers().layout);
  if (!root) return unexpected(root.error());
  Model model;
  model.core_ = core_;
  model.identity_ = identity;
  model.root_ = *root;
  return model;
}

Result<PoolId> Cache::register_pool(PoolDescription description) const {
  return core_->register_pool(std::move(description));
}
void Cache::unregister_pool(PoolId pool) const {
  core_->unregister_pool(pool);
}
bool Cache::poll(std::chrono::nanoseconds timeout) const {
  return core_->poll(timeout);
}
Result<void> Cache::flush(std::chrono::nanoseconds timeout) const {
  return core_->flush(timeout);
}
Result<std::uint64_t> Cache::drop(std::span<const PlaceId> places,
                                  std::chrono::nanoseconds timeout) const {
  return core_->drop(places, timeout);
}
const Layout& Cache::layout() const noexcept {
  return core_->tiers().layout;
}
CopyEngine& Cache::device() const noexcept {
  return core_->device();
}
std::byte* Cache::data(Slot slot) const noexcept {
  return core_->data(slot);
}
std::byte* Cache::arena() const noexcept {
  return core_->tiers().hbm.base;
}
std::uint64_t Cache::arena_stride_bytes() const noexcept {
  return core_->tiers().hbm.stride_bytes;
}
Stats Cache::stats() const {
  return core_->stats();
}
std::size_t Cache::read_events(std::uint64_t from, std::span<Event> out) const {
  return core_->read_events(from, out);
}
Result<void> Cache::close() {
  return core_->close();
}

}  // namespace terrace
