#include "serve/demo/child_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace terrace::demo {
namespace {

using SteadyClock = std::chrono::steady_clock;
using namespace std::chrono_literals;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

// The child, between fork and exec: only calls that are allowed there.
[[noreturn]] void become(const char* binary, char* const* arguments, int output, int log,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(output, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(binary, arguments);
  static constexpr char kText[] = "cannot execute the server binary\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
  _exit(127);
}

}  // namespace

ChildServer::ChildServer(const std::filesystem::path& binary,
                         const std::vector<std::string>& arguments, std::filesystem::path log)
    : log_(std::move(log)) {
  if (access(binary.c_str(), X_OK) != 0) fail("cannot execute " + binary.string());
  std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("cannot create a pipe");
  const int log_file = open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log_file < 0) fail("cannot open " + log_.string());
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become(binary.c_str(), argv.data(), ends[1], log_file, parent);
  close(log_file);
  close(ends[1]);
  output_ = ends[0];
  if (pid_ < 0) fail("cannot start " + binary.string());
}

ChildServer::~ChildServer() {
  kill();
  close(output_);
}

bool ChildServer::wait_listening(std::chrono::milliseconds timeout) {
  static constexpr std::string_view kReady = "listening on http://";
  const auto give_up_at = SteadyClock::now() + timeout;
  while (SteadyClock::now() < give_up_at) {
    const auto at = said_.find(kReady);
    const auto end = at == std::string::npos ? at : said_.find('\n', at);
    if (end != std::string::npos) {
      const auto colon = said_.rfind(':', end);
      port_ = static_cast<std::uint16_t>(std::atoi(said_.c_str() + colon + 1));
      return true;
    }
    if (!read_output(50ms) && !running()) return false;
  }
  return false;
}

// Returns: whether something came.
bool ChildServer::read_output(std::chrono::milliseconds timeout) {
  pollfd waited{output_, POLLIN, 0};
  if (::poll(&waited, 1, static_cast<int>(timeout.count())) <= 0) return false;
  char buffer[512];
  const ssize_t bytes = read(output_, buffer, sizeof(buffer));
  if (bytes > 0) said_.append(buffer, static_cast<std::size_t>(bytes));
  return bytes > 0;
}

bool ChildServer::running() {
  return !reap();
}

int ChildServer::terminate(std::chrono::milliseconds timeout) {
  send(SIGTERM);
  return wait_exit(timeout);
}

void ChildServer::kill() {
  send(SIGKILL);
  while (!reap()) std::this_thread::sleep_for(1ms);
}

void ChildServer::send(int signal) {
  const std::lock_guard lock(mutex_);
  if (!ended_) ::kill(pid_, signal);
}

int ChildServer::wait_exit(std::chrono::milliseconds timeout) {
  const auto give_up_at = SteadyClock::now() + timeout;
  while (!reap()) {
    if (SteadyClock::now() > give_up_at) {
      kill();
      return kTimedOut;
    }
    std::this_thread::sleep_for(5ms);
  }
  return exit_code_;
}

// Returns: whether the child has ended.
bool ChildServer::reap() {
  const std::lock_guard lock(mutex_);
  int status = 0;
  if (ended_ || waitpid(pid_, &status, WNOHANG) != pid_) return ended_;
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return true;
}

std::string ChildServer::log_text() const {
  std::ostringstream text;
  text << std::ifstream(log_).rdbuf();
  return text.str();
}

}  // namespace terrace::demo
