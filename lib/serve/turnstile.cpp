#include "serve/turnstile.hpp"

namespace terrace::serve {

Turnstile::Turn::~Turn() {
  if (owner_ != nullptr) owner_->leave();
}

Turnstile::Turn Turnstile::enter() {
  std::unique_lock lock(mutex_);
  if (closed_ || next_ticket_ - now_serving_ > waiting_max_) return Turn();
  const std::uint64_t ticket = next_ticket_++;
  changed_.wait(lock, [&] { return now_serving_ == ticket; });
  // Whoever is turned away waits for its turn all the same, so that tickets stay without gaps;
  // after close() that is at once, when the running one ends.
  if (!closed_) return Turn(*this);
  ++now_serving_;
  changed_.notify_all();
  return Turn();
}

void Turnstile::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void Turnstile::leave() {
  const std::lock_guard lock(mutex_);
  ++now_serving_;
  changed_.notify_all();
}

bool Turnstile::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::size_t Turnstile::running() const {
  const std::lock_guard lock(mutex_);
  return next_ticket_ > now_serving_ ? 1 : 0;
}

std::size_t Turnstile::waiting() const {
  const std::lock_guard lock(mutex_);
  return next_ticket_ > now_serving_ ? next_ticket_ - now_serving_ - 1 : 0;
}

}  // namespace terrace::serve
