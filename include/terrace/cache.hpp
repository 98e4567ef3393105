// START HERE. The cache: keeps the KV of prompt prefixes in HBM, DRAM and NVMe, and brings it back
// on a hit.
//
//   auto cache = Cache::open(options, layout);      // reserves every arena; never exceeds a byte cap
//   auto model = cache->bind(identity);             // fail closed: an absent field is refused
//   auto match = model->match(prompt);              // no I/O: the longest usable prefix, pinned
//   FetchOp fetch;
//   model->fetch(std::move(*match), fetch);         // never blocks
//   while (!fetch.done()) cache->poll(100us);
//   ReadLease prefix = fetch.take_lease();          // the head of your block table
//   auto fresh = model->reserve(prefix, blocks);    // slots for what is left to compute
//   fetch.gate(layer, stream);                      // before a layer's attention: the stream waits
//   model->commit(*fresh, tokens, point, prefix);   // published when the stream has passed `point`
//
// Two ways to own HBM. Own arena: as above, blocks are used where they lie. Registered pool: the
// engine keeps its paged KV, registers it (register_pool), and fetch() and store() copy in and out
// of its slots.
//
// Guest rules: no output but through Options::log, no environment, no signal handlers, no global
// state, no thread unless asked for (Options::driver_thread; an NVMe tier with RocksDB, whose work
// has its own). A miss is a value; errors are Result<T>; programmer's mistakes abort.
// Thread rule: every method from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "terrace/events.hpp"
#include "terrace/identity.hpp"
#include "terrace/key.hpp"
#include "terrace/layout.hpp"
#include "terrace/lease.hpp"
#include "terrace/operation.hpp"
#include "terrace/options.hpp"
#include "terrace/result.hpp"
#include "terrace/stats.hpp"

namespace terrace {

enum class Availability : std::uint8_t {
  resident,   // in HBM: usable in place
  fetchable,  // in a lower place
  in_flight,  // on its way into HBM or DRAM, for another request
  unknown,    // a remote place would have to be asked
};

// Consecutive blocks with one answer.
struct MatchRun {
  Availability availability = Availability::unknown;
  PlaceId place = 0;
  std::uint32_t first_block = 0;
  std::uint32_t block_count = 0;
};

// The longest usable prefix of a prompt, pinned until it is fetched or destroyed. At most prompt -
// 1 tokens, so that there is always a token to compute logits from.
class Match {
 public:
  Match() = default;
  Match(Match&&) noexcept;
  Match& operator=(Match&&) noexcept;
  ~Match();

  std::uint32_t block_count() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
  std::uint32_t token_count() const noexcept { return token_count_; }
  std::uint32_t prompt_tokens() const noexcept { return prompt_tokens_; }
  std::span<const MatchRun> runs() const noexcept { return runs_; }
  const Prefix& prefix() const noexcept { return prefix_; }

 private:
  friend class internal::Core;
  std::shared_ptr<internal::Core> core_;
  Prefix prefix_;
  std::uint32_t token_count_ = 0;
  std::uint32_t prompt_tokens_ = 0;
  std::vector<MatchRun> runs_;
  std::vector<std::uint32_t> blocks_;
  std::vector<PlaceId> found_at_;
};

// An engine's own paged KV: `slot_count` slots, each spread over regions. Region r of slot s is
// [base + s * stride_bytes, + bytes), and holds one component of one layer in the layout's order at
// rest. Every layer needs its K (component 0) and V (component 1), each once.
struct PoolRegion {
  std::byte* base = nullptr;
  std::uint64_t stride_bytes = 0;
  std::uint64_t bytes = 0;
  std::uint32_t layer = 0;
  std::uint32_t component = 0;
};
struct PoolDescription {
  std::uint32_t slot_count = 0;
  std::vector<PoolRegion> regions;
};
struct PoolId {
  std::uint32_t index = 0;
};

// What commit() did. published + duplicate + unpublished == full blocks given.
struct CommitResult {
  std::uint32_t published = 0;
  std::uint32_t duplicate = 0;    // another producer was first; this copy stays valid in the lease
  std::uint32_t unpublished = 0;  // no room in the index: valid in the lease, not findable
};

// A cache bound to one identity. A cheap value; keeps the cache alive.
class Model {
 public:
  // Synchronous, no I/O. Returns: the match, perhaps of no blocks (a miss); closed.
  Result<Match> match(std::span<const TokenId> prompt, const Scope& scope = {}) const;

  // Brings the match into HBM. Never blocks. A block that cannot be had ends the usable prefix
  // there. Returns: success; retry_later (fetches_max in progress); invalid_argument (no own
  // arena); closed. On error the match stays as it was.
  Result<void> fetch(Match&& match, FetchOp& op, const OperationOptions& options = {}) const;
  // As above, into `slots` of a registered pool, one for each matched block. The slots belong to
  // the operation until its last layer_point has passed; it starts after `after`, the last use of
  // their old content.
  Result<void> fetch(Match&& match, PoolId pool, std::span<const std::uint32_t> slots,
                     StreamPoint after, FetchOp& op, const OperationOptions& options = {}) const;

  // Slots for the `blocks` blocks after `prefix`. Evicts what is cold and unpinned.
  // Returns: the lease; no_space (release leases, poll, try again); closed.
  Result<WriteLease> reserve(const ReadLease& prefix, std::uint32_t blocks) const;
  // Publishes the first tokens.size() / block_tokens blocks of `lease`, whose KV is complete when
  // `after` has passed; they move to the end of `prefix`. `tokens` are those of these blocks.
  // Returns: what was done; invalid_argument (tokens not whole blocks, or more than leased);
  // closed.
  Result<CommitResult> commit(WriteLease& lease, std::span<const TokenId> tokens, StreamPoint after,
                              ReadLease& prefix) const;

  // Copies blocks out of a registered pool: slots[i] holds block prefix.blocks + i. Never blocks.
  // `tokens` are those of these blocks. On success `prefix` is advanced over them. Returns:
  // success; invalid_argument; retry_later; closed.
  Result<void> store(PoolId pool, std::span<const std::uint32_t> slots,
                     std::span<const TokenId> tokens, StreamPoint after, Prefix& prefix,
                     StoreOp& op, const OperationOptions& options = {}) const;

  // Where a chain of this identity begins. Returns: the empty prefix.
  Result<Prefix> root(const Scope& scope = {}) const;

 private:
  friend class Cache;
  std::shared_ptr<internal::Core> core_;
  ModelIdentity identity_;
  ChainPoint root_;  // without adapter and tenant
};

class Cache {
 public:
  // Reserves every arena, opens the NVMe directory, recovers what is in it. May take long: see
  // Options::progress. Returns: the cache; invalid_argument; out_of_memory; busy (another cache
  // owns the directory); io_error; unsupported.
  static Result<Cache> open(Options options, Layout layout);
  Cache(Cache&&) noexcept;
  Cache& operator=(Cache&&) noexcept;
  ~Cache();  // as close(), its result unseen

  // Returns: the bound model; identity_incomplete, naming the field.
  Result<Model> bind(const ModelIdentity& identity) const;
  // Returns: the pool; invalid_argument, saying what does not fit the layout.
  Result<PoolId> register_pool(PoolDescription description) const;
  // Blocking: waits for copies in and out of the pool.
  void unregister_pool(PoolId pool) const;

  // Moves everything on that can move, then waits up to `timeout` where nothing could.
  // Returns: whether anything moved.
  bool poll(std::chrono::nanoseconds timeout = std::chrono::nanoseconds{0}) const;

  // Blocking: polls until everything committed has reached the lowest place that will take it.
  // Returns: success; deadline_exceeded; closed.
  Result<void> flush(std::chrono::nanoseconds timeout) const;
  // Blocking: as flush(), then drops every unpinned block from `places`. Where an NVMe directory has no
  // index (below 64 MiB, or built without RocksDB), the next start finds dropped records again, and
  // verifies them as any other.
  // Returns: how many copies were dropped; deadline_exceeded; closed.
  Result<std::uint64_t> drop(std::span<const PlaceId> places,
                             std::chrono::nanoseconds timeout) const;

  const Layout& layout() const noexcept;
  CopyEngine& device() const noexcept;
  // The bytes of a slot of the own arena. REQUIRES: `slot` is leased (its generation is checked).
  std::byte* data(Slot slot) const noexcept;
  std::byte* arena() const noexcept;  // slot s is at arena() + s.index * arena_stride_bytes()
  std::uint64_t arena_stride_bytes() const noexcept;

  Stats stats() const;
  // Copies events from sequence number `from` on. Returns: how many; fewer than asked for at the
  // end. The first event has a higher number than `from` where the ring has moved on.
  std::size_t read_events(std::uint64_t from, std::span<Event> out) const;

  // Blocking: flushes what was committed (up to 10 s), drains I/O, makes it durable, gives memory
  // back as leases end. Afterwards every call says closed. Returns: success; io_error;
  // deadline_exceeded (some blocks were not written).
  Result<void> close();

 private:
  friend class internal::Core;
  Cache() = default;
  std::shared_ptr<internal::Core> core_;
};

}  // namespace terrace
