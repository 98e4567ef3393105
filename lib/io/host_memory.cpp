#include "io/host_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace terrace::internal {
namespace {

// A region that is not aligned to, or shorter than, one huge page never gets one; O_DIRECT runs at
// less than half speed on 4 KiB pages.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPrefaultStep = std::size_t{64} << 20;  // between two reports of progress

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Maps `bytes` at a multiple of the huge page size: maps more, and gives head and tail back.
std::byte* map_aligned(std::size_t bytes) {
  void* raw = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t base = round_up(start, kHugePage);
  const std::size_t head = base - start;
  if (head > 0) munmap(raw, head);
  if (kHugePage - head > 0) munmap(reinterpret_cast<void*>(base + bytes), kHugePage - head);
  return reinterpret_cast<std::byte*>(base);
}

}  // namespace

void prefault(std::span<std::byte> memory, const PrefaultProgress& progress) {
  for (std::size_t done = 0; done < memory.size();) {
    const std::size_t end = std::min(memory.size(), done + kPrefaultStep);
    for (std::size_t at = done; at < end; at += kPage) {
      static_cast<volatile std::byte*>(memory.data())[at] = std::byte{0};
    }
    done = end;
    if (progress) progress(done, memory.size());
  }
}

Result<HostMemory> HostMemory::allocate(std::size_t bytes, const Options& options) {
  HostMemory memory;
  if (bytes == 0) return memory;
  if (bytes > SIZE_MAX / 2)
    return fail(Code::out_of_memory, "byte cap is larger than the address space: lower it");
  memory.mapped_ = round_up(bytes, kHugePage);
  memory.base_ = map_aligned(memory.mapped_);
  if (memory.base_ == nullptr) {
    return fail(Code::out_of_memory, "cannot map host memory: lower the byte cap of the tier",
                errno);
  }
  memory.size_ = bytes;
  if (options.huge_pages)
    memory.huge_pages_ = madvise(memory.base_, memory.mapped_, MADV_HUGEPAGE) == 0;
  // Never into a child of fork(): a copied arena would double what the cap promises.
  madvise(memory.base_, memory.mapped_, MADV_DONTFORK);
  if (options.prefault) prefault(memory.bytes(), options.progress);
  return memory;
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)),
      huge_pages_(other.huge_pages_) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(huge_pages_, other.huge_pages_);
  return *this;
}

HostMemory::~HostMemory() {
  if (base_ != nullptr) munmap(base_, mapped_);
}

}  // namespace terrace::internal
