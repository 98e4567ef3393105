#include "sim/media.hpp"

#include <algorithm>
#include <cstring>

namespace terrace::sim {

void Media::resize(std::uint64_t bytes) {
  bytes_.resize(bytes);
  durable_.resize(bytes);
  std::erase_if(unsynced_,
                [&](const Unsynced& sector) { return sector.offset + kSectorBytes > bytes; });
  end_ = bytes;
}

void Media::cut(std::uint64_t bytes) {
  end_ = std::min(end_, bytes);
  for (auto* image : {&bytes_, &durable_})
    std::fill(image->begin() + static_cast<std::ptrdiff_t>(end_), image->end(), std::byte{0});
}

void Media::write_sector(std::uint64_t offset, const std::byte* data, std::uint64_t write) {
  std::memcpy(bytes_.data() + offset, data, kSectorBytes);
  end_ = std::max(end_, offset + kSectorBytes);
  Unsynced& sector = unsynced_.emplace_back();
  sector.offset = offset;
  sector.write = write;
  sector.number = ++landed_;
  std::memcpy(sector.bytes.data(), data, kSectorBytes);
}

void Media::sync_through(std::uint64_t landed) {
  std::erase_if(unsynced_, [&](const Unsynced& sector) {
    if (sector.number > landed) return false;
    std::memcpy(durable_.data() + sector.offset, sector.bytes.data(), kSectorBytes);
    return true;
  });
}

// Each write since the last sync is there, or is not, or in part. That a later one may be there
// where an earlier one is not is how a drive reorders.
void Media::lose_power(Random& random) {
  enum class Fate { kept, lost, torn };
  const double kept = 0.5 * random.below(3);
  Fate fate = Fate::kept;
  std::uint64_t write = ~std::uint64_t{0};
  std::erase_if(unsynced_, [&](const Unsynced& sector) {
    if (sector.write != write) {
      write = sector.write;
      fate = random.chance(kept) ? Fate::kept : random.one_in(2) ? Fate::lost : Fate::torn;
    }
    return fate == Fate::lost || (fate == Fate::torn && random.one_in(2));
  });
  sync();
  bytes_ = durable_;
}

void Media::flip_bit(Random& random) {
  if (end_ == 0) return;
  const std::uint64_t at = random.next() % end_;
  const auto bit = static_cast<std::byte>(1U << random.below(8));
  bytes_[at] ^= bit;
  durable_[at] ^= bit;
}

}  // namespace terrace::sim
