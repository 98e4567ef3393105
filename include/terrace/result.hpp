// Result<T>: the value of an operation, or the Error that says why there is none.
//
// A strict subset of std::expected's names (C++23), so that a later switch is a change of one
// alias. Errors are for what can go wrong in operation (EIO, a bad option); a miss is a value, and
// a programmer's mistake is an assertion.
// Thread rule: plain values; const use from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace terrace {

// What went wrong, and what the caller should do about it.
enum class Code : std::uint8_t {
  invalid_argument,     // Correct the argument or option; the message names it.
  identity_incomplete,  // Fill the missing identity field; a cache never guesses which model it
                        // serves.
  layout_mismatch,      // Use the layout the cache was opened with, or open a second cache.
  out_of_memory,        // Lower the byte cap of the tier, or free memory.
  no_space,             // Every slot is in use: release leases, poll, and try again.
  retry_later,          // A queue is full: poll, and submit again.
  busy,                 // Another process owns the directory: stop it, or use another directory.
  io_error,             // See os_error; the operation had no effect.
  corrupt,              // Bytes do not verify; they were not used.
  unsupported,          // This build or machine cannot do it; the message says what is missing.
  deadline_exceeded,    // The operation ended at its deadline; recompute.
  cancelled,            // The operation ended by request.
  closed,               // The cache is closed.
};

const char* to_string(Code code) noexcept;

// Trivially copyable. `message` points to a string literal: never freed, never null.
struct Error {
  Code code = Code::invalid_argument;
  std::int32_t os_error = 0;  // errno, or 0
  const char* message = "";
};

class unexpected {
 public:
  constexpr explicit unexpected(Error error) noexcept : error_(error) {}
  constexpr const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

inline constexpr unexpected fail(Code code, const char* message, int os_error = 0) noexcept {
  return unexpected(Error{code, os_error, message});
}

namespace detail {
// Ends the process with the message; called where a value is taken from a Result that has none.
[[noreturn]] void bad_result_access(const Error& error) noexcept;
}  // namespace detail

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  using error_type = Error;

  template <class U = T>
  requires(std::is_constructible_v<T, U&&> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, unexpected>) Result(U&& value)
      : has_value_(true) {  // NOLINT: implicit, as std::expected
    std::construct_at(std::addressof(value_), std::forward<U>(value));
  }
  Result(unexpected error) noexcept : has_value_(false), error_(error.error()) {}  // NOLINT
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
      : has_value_(other.has_value_) {
    if (has_value_) {
      std::construct_at(std::addressof(value_), std::move(other.value_));
    } else {
      error_ = other.error_;
    }
  }
  Result& operator=(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>) {
    if (this != std::addressof(other)) {
      std::destroy_at(this);
      std::construct_at(this, std::move(other));
    }
    return *this;
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result() {
    if (has_value_) std::destroy_at(std::addressof(value_));
  }

  explicit operator bool() const noexcept { return has_value_; }
  bool has_value() const noexcept { return has_value_; }
  T& value() & { return checked(); }
  T&& value() && { return std::move(checked()); }
  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return std::addressof(checked()); }
  const T* operator->() const { return std::addressof(const_cast<Result*>(this)->checked()); }
  const Error& error() const noexcept { return error_; }  // REQUIRES: !has_value()

 private:
  T& checked() {
    if (!has_value_) detail::bad_result_access(error_);
    return value_;
  }

  bool has_value_;
  union {
    T value_;
    Error error_;
  };
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  using error_type = Error;

  Result() noexcept : has_value_(true) {}
  Result(unexpected error) noexcept : has_value_(false), error_(error.error()) {}  // NOLINT

  explicit operator bool() const noexcept { return has_value_; }
  bool has_value() const noexcept { return has_value_; }
  void value() const {
    if (!has_value_) detail::bad_result_access(error_);
  }
  const Error& error() const noexcept { return error_; }  // REQUIRES: !has_value()

 private:
  bool has_value_;
  Error error_;
};

}  // namespace terrace
