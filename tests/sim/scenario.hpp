// One run: lives of a cache after each other, in one world, with everything that engines, operators
// and bad luck do to it. It reads top-down: run() is the story.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/life.hpp"
#include "sim/task.hpp"

namespace terrace::sim {

struct Outcome {
  Coverage coverage;
  std::string failure;  // empty: every promise was kept
};

class Scenario {
 public:
  // `folder` is empty; what is left in it is the caller's to remove.
  Scenario(const Config& config, const std::string& folder);
  Outcome run();

 private:
  // What the next life must find.
  struct Legacy {
    BlockSet warm;               // on NVMe when the last life ended
    BlockSet durable;            // and synced: a power cut must leave it
    BlockSet suspect;            // found by its header, and not read since
    std::uint64_t may_miss = 0;  // updates of the index that died in its queue
    std::uint32_t nvme_blocks = 0;
    bool is_orderly = false;  // closed: where nothing failed, nothing else may be there
  };

  Sizes any_sizes();
  void resize();
  bool live();
  void begin_life();
  void check_legacy(const FaultPlan& before);
  void step();
  void act();

  void start_task();
  void step_task();
  void sleep();
  void flush();
  void drop();
  void replace_pool();
  void arm_crash();
  void serve_everything();

  void poll(std::uint32_t rounds);
  void finish_tasks();
  void end_life(bool at_rest);
  void bury();
  void check_syncs();
  void restart();
  std::unique_ptr<Task> new_task(const Chain& chain, std::uint32_t prompt_tokens);

  const Config config_;
  World world_;
  Random random_;
  Universe universe_;
  Hardware hardware_;
  const std::string folder_;
  Coverage coverage_;
  Sizes sizes_;
  std::uint32_t tasks_max_ = 1;
  std::uint32_t calm_ = 1;  // a life lasts the longer, the higher this is
  std::uint64_t incarnation_ = 0;
  Legacy legacy_;
  std::unique_ptr<Life> life_;
  std::vector<std::unique_ptr<Task>> tasks_;
};

}  // namespace terrace::sim
