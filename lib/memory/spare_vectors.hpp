// Vectors whose use has ended and which keep their memory, for whoever needs one next: in steady state
// nobody who takes one allocates.
// Thread rule: every function from any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace terrace::internal {

template <class T>
class SpareVectors {
 public:
  SpareVectors() { spare_.reserve(kSpareMax); }

  // Returns: an empty vector, with the room it had.
  std::vector<T> take() noexcept {
    const std::lock_guard guard(lock_);
    if (spare_.empty()) return {};
    std::vector<T> vector = std::move(spare_.back());
    spare_.pop_back();
    return vector;
  }

  void give(std::vector<T>&& vector) noexcept {
    vector.clear();
    const std::lock_guard guard(lock_);
    if (spare_.size() < kSpareMax) spare_.push_back(std::move(vector));
  }

  // One for as long as this lives.
  class Loan {
   public:
    explicit Loan(SpareVectors& from) noexcept : from_(from), vector_(from.take()) {}
    ~Loan() { from_.give(std::move(vector_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    std::vector<T>& operator*() noexcept { return vector_; }
    std::vector<T>* operator->() noexcept { return &vector_; }

   private:
    SpareVectors& from_;
    std::vector<T> vector_;
  };

 private:
  // About as many requests as begin or end at a time: who runs keeps its own.
  static constexpr std::size_t kSpareMax = 64;

  std::mutex lock_;
  std::vector<std::vector<T>> spare_;  // last in, first out: warm in the CPU's caches
};

}  // namespace terrace::internal
