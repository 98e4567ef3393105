// The index that keeps nothing: records are found by a scan. For small stores, where a database
// would cost more than it saves, and for builds without RocksDB.
#include "index/slot_index.hpp"

namespace terrace::internal {
namespace {

class NullSlotIndex final : public SlotIndex {
 public:
  bool usable() const noexcept override { return false; }
  Result<void> load(const Visitor&) override { return {}; }
  bool put(std::uint32_t, std::span<const std::byte>) override { return true; }
  bool erase(std::uint32_t) override { return true; }
  Result<void> mark_complete() override { return {}; }
  std::uint64_t failures() const noexcept override { return 0; }
  Result<void> flush() override { return {}; }
};

}  // namespace

std::unique_ptr<SlotIndex> make_null_slot_index() {
  return std::make_unique<NullSlotIndex>();
}

}  // namespace terrace::internal
