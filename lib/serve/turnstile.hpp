// One at a time, in order of arrival: the engine computes one request, the others wait here.
//
// Never holds anyone who only wants to look (/health, /metrics). Called by the server's handlers.
// Thread rule: every method from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace terrace::serve {

class Turnstile {
 public:
  // The right to compute; given back when destroyed.
  class Turn {
   public:
    Turn() = default;
    explicit Turn(Turnstile& owner) : owner_(&owner) {}
    Turn(Turn&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();
    explicit operator bool() const noexcept { return owner_ != nullptr; }

   private:
    Turnstile* owner_ = nullptr;
  };

  explicit Turnstile(std::size_t waiting_max) : waiting_max_(waiting_max) {}

  // Blocks until it is the caller's turn. Returns: the turn; none where too many wait, or after
  // close().
  Turn enter();
  // Whoever waits is turned away, and whoever comes; the one who runs is not disturbed.
  void close();

  bool closed() const;
  std::size_t running() const;
  std::size_t waiting() const;

 private:
  void leave();

  const std::size_t waiting_max_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ticket_ = 0;
  std::uint64_t now_serving_ = 0;  // tickets below it are done; it itself runs if it was drawn
  bool closed_ = false;
};

}  // namespace terrace::serve
