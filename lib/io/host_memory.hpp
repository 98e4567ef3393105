// Anonymous host memory: reserved once, huge pages where asked for and possible, touched in advance
// where asked for.
// Thread rule: owner only.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "terrace/result.hpp"

namespace terrace::internal {

using PrefaultProgress = std::function<void(std::size_t done, std::size_t total)>;

// Touches every page, so that no later access has to wait for the kernel. `progress` may be empty.
// REQUIRES: fresh memory: its first bytes become 0.
void prefault(std::span<std::byte> memory, const PrefaultProgress& progress);

class HostMemory {
 public:
  struct Options {
    bool huge_pages = true;
    bool prefault = true;
    PrefaultProgress progress;
  };

  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();

  // Returns: the memory, zeroed, aligned to 2 MiB; out_of_memory. bytes == 0 gives empty memory.
  static Result<HostMemory> allocate(std::size_t bytes, const Options& options);

  std::span<std::byte> bytes() const noexcept { return {base_, size_}; }
  bool huge_pages() const noexcept { return huge_pages_; }  // asked for, and the kernel agreed

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;    // as asked for
  std::size_t mapped_ = 0;  // as mapped
  bool huge_pages_ = false;
};

}  // namespace terrace::internal
