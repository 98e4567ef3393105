// Zeroed memory in whole pages, in huge pages where the system gives them.
//
// Weights and activations are read end to end for every token: with 4 KiB pages the first touch
// alone costs seconds.
// Thread rule: a plain owner of memory.
#pragma once

#include <cstddef>
#include <span>

namespace terrace::engine {

class PageBuffer {
 public:
  PageBuffer() = default;
  // Throws std::bad_alloc.
  explicit PageBuffer(std::size_t bytes);
  PageBuffer(PageBuffer&& other) noexcept;
  PageBuffer& operator=(PageBuffer&& other) noexcept;
  ~PageBuffer();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::span<float> floats() const noexcept {
    return {reinterpret_cast<float*>(data_), size_ / sizeof(float)};
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace terrace::engine
