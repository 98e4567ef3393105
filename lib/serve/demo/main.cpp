// terrace-demo: see demo.hpp. SIGINT and SIGTERM end it early, and it cleans up.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <iostream>

#include "serve/demo/demo.hpp"

namespace {

std::atomic<bool> interrupted{false};

std::filesystem::path beside_this_program(const char* name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

// On a disk rather than in memory, where the system makes that difference.
std::filesystem::path temporary_parent() {
  return access("/var/tmp", W_OK) == 0 ? "/var/tmp" : std::filesystem::temp_directory_path();
}

}  // namespace

int main(int argc, char** argv) {
  terrace::demo::DemoOptions options;
  options.server = beside_this_program("terrace-serve");
  options.directory = temporary_parent();
  options.terminal = isatty(STDOUT_FILENO) != 0;
  CLI::App app{"One prompt through HBM, DRAM, NVMe, a restart and kill -9", "terrace-demo"};
  app.add_option("--model", options.model,
                 "builtin:tiny, builtin:small or a Hugging Face directory")
      ->capture_default_str();
  app.add_option("--server", options.server, "The terrace-serve to start")->capture_default_str();
  app.add_option("--dir", options.directory, "Where the temporary NVMe directory is made")
      ->capture_default_str();
  app.add_option("--prompt-tokens", options.prompt_tokens, "Length of the prompt, about")
      ->check(CLI::Range(64, 1 << 20))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const auto stop = [](int) { interrupted = true; };
  std::signal(SIGINT, stop);
  std::signal(SIGTERM, stop);
  return terrace::demo::run_demo(options, std::cout, interrupted);
}
