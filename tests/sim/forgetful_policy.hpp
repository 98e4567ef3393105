// A canary: a policy that now and then loses sight of a copy, so that it can never leave.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <set>
#include <utility>

#include "terrace/policy.hpp"

namespace terrace::sim {

class ForgetfulPolicy final : public EvictionPolicy {
 public:
  explicit ForgetfulPolicy(std::uint32_t block_capacity)
      : inner_(make_lru_policy(block_capacity)) {}

  void inserted(PlaceId place, std::uint32_t block, std::uint32_t parent) override {
    if (++insertions_ % 10 == 0) {
      forgotten_.insert({place, block});
      return;
    }
    const bool parent_is_forgotten = parent != kNone && forgotten_.contains({place, parent});
    inner_->inserted(place, block, parent_is_forgotten ? kNone : parent);
  }
  void touched(PlaceId place, std::uint32_t block) override {
    if (!forgotten_.contains({place, block})) inner_->touched(place, block);
  }
  void removed(PlaceId place, std::uint32_t block) override {
    if (forgotten_.erase({place, block}) == 0) inner_->removed(place, block);
  }
  std::uint32_t coldest(PlaceId place) const override { return inner_->coldest(place); }
  std::uint32_t next_warmer(PlaceId place, std::uint32_t block) const override {
    return inner_->next_warmer(place, block);
  }

 private:
  std::unique_ptr<EvictionPolicy> inner_;
  std::set<std::pair<PlaceId, std::uint32_t>> forgotten_;
  std::uint32_t insertions_ = 0;
};

inline std::unique_ptr<EvictionPolicy> make_forgetful_policy(std::uint32_t block_capacity) {
  return std::make_unique<ForgetfulPolicy>(block_capacity);
}

}  // namespace terrace::sim
