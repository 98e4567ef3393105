// Least recently used, one order a place.
#include <array>

#include "memory/id_list.hpp"
#include "terrace/policy.hpp"

namespace terrace {
namespace {

using internal::IdList;
static_assert(IdList::kNone == EvictionPolicy::kNone);

class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(std::uint32_t block_capacity) { orders_.fill(IdList(block_capacity)); }

  void inserted(PlaceId place, std::uint32_t block, std::uint32_t parent) override {
    if (parent == kNone) {
      orders_[place].push_back(block);
    } else {
      orders_[place].insert_before(block, parent);
    }
  }
  void touched(PlaceId place, std::uint32_t block) override {
    orders_[place].remove(block);
    orders_[place].push_back(block);
  }
  void removed(PlaceId place, std::uint32_t block) override { orders_[place].remove(block); }
  std::uint32_t coldest(PlaceId place) const override { return orders_[place].front(); }
  std::uint32_t next_warmer(PlaceId place, std::uint32_t block) const override {
    return orders_[place].next(block);
  }

 private:
  std::array<IdList, kPlaceCount> orders_;  // front: coldest
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru_policy(std::uint32_t block_capacity) {
  return std::make_unique<LruPolicy>(block_capacity);
}

}  // namespace terrace
