#include "sim/pool_request.hpp"

#include <algorithm>

namespace terrace::sim {

using Progress = StreamWork::Progress;

PoolRequest::PoolRequest(Life& life, const Chain& chain, std::uint32_t prompt_tokens)
    : Task(life, chain, prompt_tokens),
      watch_(life, chain, prompt_tokens),
      match_(watch_.match(prompt())) {}

void PoolRequest::watch() {
  if (state_ == State::fetching) watch_.look(op_);
}

void PoolRequest::step() {
  switch (state_) {
    case State::matched:
      return fetch();
    case State::fetching:
      return await_fetch();
    case State::reading:
      return enqueue_reads();
    case State::verifying:
      return verify();
    case State::computing:
      return compute();
    case State::submitting:
      return submit();
    case State::storing:
      return await_store();
  }
}

// Whoever takes them next comes after the work on them, on the same stream or by waiting for it.
void PoolRequest::give_back() {
  life_.pool()->give(slots_);
  slots_.clear();
}

// ---- The prefix.

void PoolRequest::fetch() {
  if (life_.closed() || lucky(25)) return end();
  slots_ = life_.pool()->take(watch_.matched());
  if (slots_.size() < watch_.matched()) {
    give_back();
    return end();
  }
  // All that the engine ever did with these slots was on one stream.
  const auto last_use = life_.device().record(life_.pool_stream());
  const OperationOptions options = watch_.options();
  const auto started = last_use ? life_.model(chain_).fetch(std::move(match_), life_.pool_id(),
                                                            slots_, *last_use, op_, options)
                                : Result<void>(unexpected(last_use.error()));
  if (!started) {
    const Code code = started.error().code;
    check(code == Code::retry_later || life_.device().has_failed(), "fetch() into a pool failed");
    give_back();
    if (code != Code::retry_later) end();
    return;
  }
  watch_.started(false);
  state_ = State::fetching;
}

void PoolRequest::await_fetch() {
  if (!op_.done()) {
    check(!life_.closed(), "I25: an operation has not ended at close()");
    if (lucky(40)) {
      // Its slots are lost to the engine until it takes the pool back.
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
  usable_ = op_.blocks_usable();
  read();
}

// ---- Attention.

void PoolRequest::read() {
  readback_.emplace(life_.buffers());
  for (std::uint32_t i = 0; i < usable_; ++i) readback_->begin(chain_.blocks[i]);
  std::uint32_t layers = 0;
  for (const PoolRegion& region : life_.pool()->regions()) {
    if (region.layer == layers) readback_->work().gate(layers++);
    const Slice slice = life_.universe().layout().component_slice(region.layer, region.component);
    for (std::uint32_t i = 0; i < usable_; ++i) {
      readback_->work().copy({readback_->buffer(i) + slice.offset,
                              life_.pool()->data(region, slots_[i]), region.bytes});
    }
  }
  state_ = State::reading;
  enqueue_reads();
}

void PoolRequest::enqueue_reads() {
  const Progress progress = readback_->work().enqueue(life_.device(), life_.pool_stream(), &op_);
  if (progress == Progress::failed) return end();
  if (progress == Progress::again) return;
  give_back();
  state_ = State::verifying;
}

void PoolRequest::verify() {
  const PointState state = life_.device().query(readback_->work().point());
  if (state == PointState::pending) return;
  if (state == PointState::failed) return end();
  life_.coverage().blocks_verified += readback_->size();
  check(readback_->compare(life_.universe()), "WRONG BYTES in a pool");
  readback_.reset();
  op_ = FetchOp();
  begin_computation();
}

// ---- The rest of the prompt.

void PoolRequest::begin_computation() {
  if (life_.closed() || life_.sizes().dram_blocks == 0) return end();
  // Sometimes all of it: what the cache has already costs nothing.
  first_stored_ = lucky(3) ? 0 : usable_;
  const std::uint32_t count = whole_blocks() - first_stored_;
  slots_ = life_.pool()->take(count);
  if (slots_.size() < count || count == 0) {
    give_back();
    return end();
  }
  computation_ = StreamWork();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::byte* bytes = life_.universe().block(chain_.blocks[first_stored_ + i]).bytes.data();
    for (const PoolRegion& region : life_.pool()->regions()) {
      const Slice slice = life_.universe().layout().component_slice(region.layer, region.component);
      computation_.copy(
          {life_.pool()->data(region, slots_[i]), bytes + slice.offset, region.bytes});
    }
  }
  state_ = State::computing;
}

void PoolRequest::compute() {
  const Progress progress = computation_.enqueue(life_.device(), life_.pool_stream(), nullptr);
  if (progress == Progress::failed) return end();
  if (progress == Progress::enqueued) state_ = State::submitting;
}

void PoolRequest::submit() {
  const auto count = static_cast<std::uint32_t>(slots_.size());
  const ChainPoint tip = first_stored_ == 0
                             ? chain_.root
                             : life_.universe().block(chain_.blocks[first_stored_ - 1]).point;
  Prefix prefix{chain_.root, tip, first_stored_};
  for (std::uint32_t i = 0; i < count; ++i) life_.commit(chain_.blocks[first_stored_ + i]);
  const OperationOptions options{.user_data = life_.world().luck().next()};
  room_ = life_.room(kDram0);
  const auto started =
      life_.model(chain_).store(life_.pool_id(), slots_, tokens_of(first_stored_, count),
                                computation_.point(), prefix, store_, options);
  if (!started) {
    const Code code = started.error().code;
    if (code == Code::retry_later) return;
    check(life_.closed() || life_.device().has_failed(), "store() failed");
    return end();
  }
  user_data_ = options.user_data;
  state_ = State::storing;
}

void PoolRequest::await_store() {
  if (!store_.done()) {
    check(!life_.closed() || life_.may_fail(), "I25: a store has not ended at close()");
    if (life_.closed() || lucky(60)) {
      ++life_.coverage().abandoned;
      return end();
    }
    return;
  }
  const std::uint32_t stored = store_.blocks_stored();
  check(store_.user_data() == user_data_, "I13: the end of another operation");
  check(stored <= slots_.size(), "more stored than given");
  const auto status = store_.status();
  check(stored == slots_.size() || !status, "I25: a store that failed says success");
  check(status || status.error().code != Code::no_space || room_ < slots_.size() ||
            !life_.mirror().knows(),
        "I17: no_space, and there was room");
  for (std::uint32_t i = 0; i < stored; ++i) life_.given(chain_.blocks[first_stored_ + i]);
  life_.coverage().stores += stored;
  store_ = StoreOp();
  // The cache has copied them out, so the engine may write something else there at once.
  life_.pool()->scribble(slots_);
  give_back();
  end();
}

}  // namespace terrace::sim
