// The world of one run: time, luck, and where the first broken promise is kept. The seams share it.
//
// It also knows when the process is to die: every call of the cache into the world is a step, and a
// crash is armed for a number of steps ahead, so that it may fall into the middle of anything.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/config.hpp"
#include "sim/faults.hpp"
#include "sim/sim_clock.hpp"

namespace terrace::sim {

class World {
 public:
  explicit World(const Config& config);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Config& config() const { return config_; }
  const std::shared_ptr<SimClock>& clock() const { return clock_; }
  Clock::Time now() const { return clock_->now(); }
  FaultPlan& faults() { return faults_; }
  Random& luck() { return luck_; }
  bool strikes(Fault fault) { return faults_.strikes(fault); }
  // Readable at any time: nobody ever waits for real.
  int ready_fd() const { return ready_fd_; }

  // The cache looks at the world, and time passes.
  void look();
  // The cache has called the world; here it may crash.
  void step();

  // In `steps` steps from now `crash` is called, once, in the middle of whatever goes on.
  void arm(std::uint32_t steps, std::function<void()> crash);
  bool armed() const { return crash_ != nullptr; }
  bool crashed() const { return crashed_; }
  Clock::Time crash_time() const { return crash_time_; }
  // A new process, in the world as the crash has left it.
  void restart();

  // What the simulated hardware saw the cache do, though it must never. The first one counts.
  void report(std::string what);
  void check(bool holds, const char* what) {
    if (!holds) report(what);
  }
  // For TERRACE_SIM_TRACE.
  void note(const std::string& what) const;
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }

 private:
  const Config config_;
  std::shared_ptr<SimClock> clock_;
  FaultPlan faults_;
  Random luck_;
  int ready_fd_ = -1;
  std::function<void()> crash_;
  std::uint32_t steps_to_crash_ = 0;
  bool crashed_ = false;
  Clock::Time crash_time_{0};
  std::string failure_;
};

}  // namespace terrace::sim
