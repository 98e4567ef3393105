#include "sim/world.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace terrace::sim {

World::World(const Config& config)
    : config_(config),
      clock_(std::make_shared<SimClock>(config.seed)),
      faults_(config.seed, config.faults),
      luck_(config.seed, "luck of the world"),
      ready_fd_(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {}

World::~World() {
  ::close(ready_fd_);
}

void World::look() {
  clock_->pass();
  step();
}

void World::step() {
  if (crash_ == nullptr || steps_to_crash_-- > 0) return;
  crashed_ = true;
  crash_time_ = now();
  std::exchange(crash_, nullptr)();
}

void World::arm(std::uint32_t steps, std::function<void()> crash) {
  steps_to_crash_ = steps;
  crash_ = std::move(crash);
}

void World::restart() {
  crash_ = nullptr;
  crashed_ = false;
}

void World::report(std::string what) {
  note("FAILURE: " + what);
  if (failure_.empty()) failure_ = std::move(what);
}

void World::note(const std::string& what) const {
  if (config_.trace)
    std::printf("%14.6f ms  %s\n", 1e-6 * static_cast<double>(now().count()), what.c_str());
}

}  // namespace terrace::sim
