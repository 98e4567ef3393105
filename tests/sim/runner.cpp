#include "sim/runner.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "sim/folder.hpp"

namespace terrace::sim {
namespace {

// Through a pipe, which holds as much without a reader.
struct Message {
  Coverage coverage;
  char failure[512] = "";
};
static_assert(sizeof(Message) <= 4096 && std::is_trivially_copyable_v<Message>);

[[noreturn]] void run_and_exit(const Config& config, const std::string& folder, int pipe) {
  const Outcome outcome = Scenario(config, folder).run();
  Message message;
  message.coverage = outcome.coverage;
  std::strncpy(message.failure, outcome.failure.c_str(), sizeof message.failure - 1);
  const bool told = ::write(pipe, &message, sizeof message) == sizeof message;
  ::_exit(told ? 0 : 1);
}

std::string names_of(FaultMask mask) {
  if (mask == kEveryFault) return "all";
  std::string names;
  for (std::size_t i = 0; i < kFaultCount; ++i) {
    const auto fault = static_cast<Fault>(i);
    if ((mask & bit(fault)) != 0)
      names += (names.empty() ? "" : ",") + std::string(to_string(fault));
  }
  return names.empty() ? "none" : names;
}

FaultMask mask_of(const std::string& names) {
  if (names == "all") return kEveryFault;
  FaultMask mask = 0;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    for (std::size_t i = 0; i < kFaultCount; ++i) {
      if (name == to_string(static_cast<Fault>(i))) mask |= bit(static_cast<Fault>(i));
    }
  }
  return mask;
}

bool fails(const Config& config) {
  return !run_in_child(config).failure.empty();
}

}  // namespace

Outcome run_here(const Config& config) {
  const Folder folder;
  return Scenario(config, folder.path()).run();
}

Outcome run_in_child(const Config& config) {
  const Folder folder;  // of the parent, who outlives whatever happens
  int pipe[2];
  if (::pipe(pipe) != 0) return {{}, "no pipe"};
  const pid_t child = ::fork();
  if (child == 0) run_and_exit(config, folder.path(), pipe[1]);
  ::close(pipe[1]);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return {{}, "no child process"};
  Message message;
  const bool told = ::read(pipe[0], &message, sizeof message) == sizeof message;
  ::close(pipe[0]);
  if (told && WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {message.coverage, message.failure};
  return {{},
          WIFSIGNALED(status)
              ? "the process died of signal " + std::to_string(WTERMSIG(status))
              : "the process ended with status " + std::to_string(WEXITSTATUS(status))};
}

Config shrink(const Config& config) {
  Config smallest = config;
  for (std::uint32_t step = smallest.operations / 2; step > 0; step /= 2) {
    Config fewer = smallest;
    fewer.operations -= std::min(step, fewer.operations);
    if (fails(fewer)) smallest = fewer;
  }
  const FaultMask possible = FaultPlan(config.seed, config.faults).mask();
  smallest.faults &= possible;
  for (std::size_t i = 0; i < kFaultCount; ++i) {
    Config fewer = smallest;
    fewer.faults &= ~bit(static_cast<Fault>(i));
    if (fewer.faults != smallest.faults && fails(fewer)) smallest = fewer;
  }
  return smallest;
}

std::string replay_command(const Config& config) {
  return "TERRACE_SIM_SEED=" + std::to_string(config.seed) +
         " TERRACE_SIM_OPERATIONS=" + std::to_string(config.operations) +
         " TERRACE_SIM_FAULTS=" + names_of(config.faults) +
         (config.canary == Canary::none
              ? ""
              : std::string(" TERRACE_SIM_CANARY=") + to_string(config.canary)) +
         " sim_test --gtest_filter=Simulation.KeepsEveryPromise";
}

bool config_from_environment(Config& config) {
  const char* seed = std::getenv("TERRACE_SIM_SEED");
  const char* operations = std::getenv("TERRACE_SIM_OPERATIONS");
  const char* faults = std::getenv("TERRACE_SIM_FAULTS");
  const char* canary = std::getenv("TERRACE_SIM_CANARY");
  if (operations != nullptr) config.operations = static_cast<std::uint32_t>(std::atoi(operations));
  if (faults != nullptr) config.faults = mask_of(faults);
  for (std::size_t i = 0; canary != nullptr && i < std::size(kCanaryNames); ++i) {
    if (std::string_view(canary) == kCanaryNames[i]) config.canary = static_cast<Canary>(i);
  }
  config.trace = std::getenv("TERRACE_SIM_TRACE") != nullptr;
  if (seed == nullptr) return false;
  config.seed = std::strtoull(seed, nullptr, 10);
  return true;
}

}  // namespace terrace::sim
