// A vector whose memory asks for huge pages: tables that are read at random spend more time on
// looking pages up than on reading, otherwise. Small ones come from the heap.
// Thread rule: as std::vector.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace terrace::internal {

template <class T>
struct HugeAllocator {
  using value_type = T;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  HugeAllocator() = default;
  template <class U>
  HugeAllocator(const HugeAllocator<U>&) noexcept {}

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    void* memory = ::operator new (bytes, std::align_val_t{alignment(bytes)});
    if (bytes >= kHugePage) (void)::madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    ::operator delete (memory, std::align_val_t{alignment(count * sizeof(T))});
  }
  bool operator==(const HugeAllocator&) const = default;

 private:
  static constexpr std::size_t alignment(std::size_t bytes) noexcept {
    return bytes >= kHugePage ? kHugePage : alignof(T) < 64 ? 64 : alignof(T);
  }
};

template <class T>
using HugeVector = std::vector<T, HugeAllocator<T>>;

}  // namespace terrace::internal
