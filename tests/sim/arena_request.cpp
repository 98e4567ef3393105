#include "sim/arena_request.hpp"

namespace terrace::sim {

using Progress = StreamWork::Progress;

ArenaRequest::ArenaRequest(Life& life, const Chain& chain, std::uint32_t prompt_tokens)
    : Task(life, chain, prompt_tokens),
      watch_(life, chain, prompt_tokens),
      match_(watch_.match(prompt())),
      stream_(life.stream(life.world().luck().below(16))) {}

void ArenaRequest::watch() {
  if (state_ == State::fetching) watch_.look(op_);
}

void ArenaRequest::step() {
  switch (state_) {
    case State::matched:
      return fetch();
    case State::fetching:
      return await_fetch();
    case State::reading:
      return enqueue_reads();
    case State::verifying:
    case State::leaving:
      return verify();
    case State::reserving:
      return reserve();
    case State::computing:
      return compute();
    case State::holding:
      return hold();
  }
}

// ---- The prefix.

void ArenaRequest::fetch() {
  if (life_.closed() || lucky(25)) return end();  // the match is dropped, and counts nowhere
  const OperationOptions options = watch_.options();
  const auto started = life_.model(chain_).fetch(std::move(match_), op_, options);
  if (!started) {
    check(started.error().code == Code::retry_later, "fetch() failed");
    return;
  }
  watch_.started(true);
  state_ = State::fetching;
}

void ArenaRequest::await_fetch() {
  if (!op_.done()) {
    check(!life_.closed(), "I25: an operation has not ended at close()");
    if (lucky(40)) {
      ++life_.coverage().abandoned;
      return end();
    }
    if (lucky(20)) {
      ++life_.coverage().cancelled;
      watch_.cancelled();
      op_.cancel();
    }
    return;
  }
  watch_.ended(op_);
  lease_ = op_.take_lease();
  check(lease_.slots().size() == op_.blocks_usable(), "I12: a lease of other blocks");
  check(lease_.prefix().blocks == op_.blocks_usable(), "I12: a prefix of other blocks");
  read(true);
}

// ---- Attention.

void ArenaRequest::read(bool gated) {
  is_gated_ = gated;
  readback_.emplace(life_.buffers());
  const Layout& layout = life_.universe().layout();
  const std::size_t count = lease_.slots().size();
  for (std::size_t i = 0; i < count; ++i) readback_->begin(chain_.blocks[i]);
  for (std::uint32_t layer = 0; layer < layout.layer_count(); ++layer) {
    if (gated) readback_->work().gate(layer);
    const Slice slice = layout.layer_slice(layer);
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* slot = life_.cache().data(lease_.slots()[i]);
      readback_->work().copy(
          {readback_->buffer(i) + slice.offset, slot + slice.offset, slice.bytes});
    }
  }
  state_ = State::reading;
  enqueue_reads();
}

void ArenaRequest::enqueue_reads() {
  const Progress progress =
      readback_->work().enqueue(life_.device(), stream_, is_gated_ ? &op_ : nullptr);
  if (progress == Progress::again) return;
  if (progress == Progress::failed) return end();
  if (is_last_read_) release();
  state_ = is_last_read_ ? State::leaving : State::verifying;
}

void ArenaRequest::verify() {
  const PointState state = life_.device().query(readback_->work().point());
  if (state == PointState::pending) return;
  if (state == PointState::failed) return end();
  life_.coverage().blocks_verified += readback_->size();
  check(readback_->compare(life_.universe()), "WRONG BYTES in a lease");
  readback_.reset();
  if (state_ == State::leaving) return end();
  const bool computes = !is_prefill_over_ && !life_.closed();
  state_ = computes ? State::reserving : State::holding;
}

// ---- The rest of the prompt.

void ArenaRequest::reserve() {
  op_ = FetchOp();
  const auto have = static_cast<std::uint32_t>(lease_.slots().size());
  const std::uint32_t missing = whole_blocks() - have;
  const std::uint32_t room = life_.room(kHbm0);
  is_prefill_over_ = true;
  state_ = State::holding;
  if (missing == 0 || lucky(8) || life_.closed()) return;
  auto fresh = life_.model(chain_).reserve(lease_, missing);
  if (!fresh) {
    check(fresh.error().code == Code::no_space, "reserve() failed");
    check(room < missing || !life_.mirror().knows(), "I17: no_space, and there was room");
    ++life_.coverage().refusals;
    return;
  }
  fresh_ = std::move(*fresh);
  computation_ = StreamWork();
  for (std::uint32_t i = 0; i < missing; ++i) {
    const std::vector<std::byte>& bytes = life_.universe().block(chain_.blocks[have + i]).bytes;
    computation_.copy({life_.cache().data(fresh_->slots()[i]), bytes.data(), bytes.size()});
  }
  state_ = State::computing;
}

void ArenaRequest::compute() {
  const Progress progress = computation_.enqueue(life_.device(), stream_, nullptr);
  if (progress == Progress::again) return;
  if (progress == Progress::failed) return end();
  commit(computation_.point());
  state_ = State::holding;
}

void ArenaRequest::commit(StreamPoint after) {
  const auto have = static_cast<std::uint32_t>(lease_.slots().size());
  const auto fresh = static_cast<std::uint32_t>(fresh_->slots().size());
  const std::uint32_t count = lucky(4) ? life_.world().luck().below(fresh + 1) : fresh;
  for (std::uint32_t i = 0; i < count; ++i) life_.commit(chain_.blocks[have + i]);
  const auto result = life_.model(chain_).commit(*fresh_, tokens_of(have, count), after, lease_);
  if (!result) {
    check(life_.closed() && result.error().code == Code::closed, "commit() failed");
  } else {
    check(result->published + result->duplicate + result->unpublished == count,
          "commit() did not count every block");
    check(result->unpublished == 0, "no room in the index for a block that has a slot");
    check(lease_.slots().size() == have + count, "commit() lost slots");
    for (std::uint32_t i = 0; i < count; ++i) life_.given(chain_.blocks[have + i]);
    life_.committed(*result);
  }
  fresh_->release(after);
  fresh_.reset();
}

// ---- The end.

void ArenaRequest::hold() {
  if (!life_.settling() && !lucky(6)) return;
  is_last_read_ = life_.settling() || lucky(2);
  read(false);
}

void ArenaRequest::release() {
  lease_.release(readback_->work().point());
}

}  // namespace terrace::sim
