// The memory of one request, piece by piece, and how far it has come.
//
// A request's pieces are borrowed during submit() only, so a device keeps them in here. Must never
// allocate. Used by RequestTable and FileDevice.
// Thread rule: one thread at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>

#include "base/assert.hpp"
#include "terrace/io.hpp"

namespace terrace::internal {

class IoVector {
 public:
  IoVector() = default;
  // Becomes the whole of `request`. In place: most requests use one piece of many.
  void start(const IoRequest& request) noexcept {
    TERRACE_ASSERT(request.more.size() < kIoPiecesMax, request.more.size());
    kind_ = request.kind;
    at_ = request.offset;
    left_bytes_ = 0;
    first_ = count_ = 0;
    if (kind_ == IoRequest::Kind::sync) return;
    add({request.data, request.bytes});
    for (const IoPiece& piece : request.more) add(piece);
  }

  IoRequest::Kind kind() const noexcept { return kind_; }
  // What is still to be transferred: to or from `offset()` on, `left_bytes()` in `pieces()`.
  std::uint64_t offset() const noexcept { return at_; }
  std::uint64_t left_bytes() const noexcept { return left_bytes_; }
  std::span<const iovec> pieces() const noexcept {
    return std::span(pieces_).subspan(first_, count_ - first_);
  }

  // REQUIRES: bytes <= left_bytes().
  void advance(std::uint64_t bytes) noexcept {
    TERRACE_ASSERT(bytes <= left_bytes_, bytes);
    at_ += bytes;
    left_bytes_ -= bytes;
    while (bytes > 0) {
      iovec& piece = pieces_[first_];
      const std::uint64_t step = bytes < piece.iov_len ? bytes : piece.iov_len;
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + step;
      piece.iov_len -= step;
      bytes -= step;
      if (piece.iov_len == 0) ++first_;
    }
  }

 private:
  // Pieces that touch in memory are one: a request of one piece has faster ways into the kernel.
  void add(const IoPiece& piece) noexcept {
    left_bytes_ += piece.bytes;
    if (count_ > 0) {
      iovec& last = pieces_[count_ - 1];
      if (static_cast<std::byte*>(last.iov_base) + last.iov_len == piece.data) {
        last.iov_len += piece.bytes;
        return;
      }
    }
    pieces_[count_++] = {piece.data, piece.bytes};
  }

  IoRequest::Kind kind_ = IoRequest::Kind::read;
  std::uint64_t at_ = 0;
  std::uint64_t left_bytes_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
  std::array<iovec, kIoPiecesMax> pieces_;
};

}  // namespace terrace::internal
