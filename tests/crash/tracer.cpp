// See tracer.hpp.
#include "crash/tracer.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::test {
namespace {

constexpr int kAnyFlags = -1;

struct TracedCall {
  long number;
  Call kind;
  int flags_at = kAnyFlags;  // the argument that must have O_CREAT in it
};

constexpr TracedCall kTraced[] = {
    {SYS_write, Call::write},          {SYS_pwrite64, Call::write},
    {SYS_writev, Call::write},         {SYS_pwritev, Call::write},
    {SYS_io_uring_enter, Call::uring}, {SYS_fsync, Call::sync},
    {SYS_fdatasync, Call::sync},       {SYS_sync_file_range, Call::sync},
    {SYS_renameat2, Call::rename},     {SYS_ftruncate, Call::truncate},
    {SYS_truncate, Call::truncate},    {SYS_fallocate, Call::allocate},
    {SYS_unlinkat, Call::unlink},      {SYS_mkdirat, Call::create},
    {SYS_openat, Call::create, 2},
// Calls that newer architectures have only in their "at" form.
#if defined(SYS_rename)
    {SYS_rename, Call::rename},        {SYS_unlink, Call::unlink},
    {SYS_rmdir, Call::unlink},         {SYS_mkdir, Call::create},
    {SYS_open, Call::create, 1},
#endif
#if defined(SYS_renameat)
    {SYS_renameat, Call::rename},
#endif
};

std::vector<sock_filter> make_filter() {
  constexpr auto number_at = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  std::vector<sock_filter> filter;
  for (const TracedCall& call : kTraced) {
    const sock_filter trace =
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | static_cast<std::uint32_t>(call.kind));
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number_at));
    const auto number = static_cast<std::uint32_t>(call.number);
    if (call.flags_at == kAnyFlags) {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
      filter.push_back(trace);
    } else {
      const auto flags_at = static_cast<std::uint32_t>(offsetof(seccomp_data, args) +
                                                       sizeof(seccomp_data::args[0]) *
                                                           static_cast<std::size_t>(call.flags_at));
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3));
      filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags_at));
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1));
      filter.push_back(trace);
    }
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

bool is_event(int status, int event) {
  return WIFSTOPPED(status) && status >> 8 == (SIGTRAP | event << 8);
}

bool is_call_stop(int status) {  // PTRACE_O_TRACESYSGOOD tells it from a trap
  return WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80);
}

// What a stop was about: SIGSTOP and SIGTRAP are the tracer's own, all else is for the process.
long signal_of(int status) {
  const int signal = WSTOPSIG(status) & 0x7f;
  return signal == SIGSTOP || signal == SIGTRAP ? 0 : signal;
}

}  // namespace

const char* to_string(Call call) {
  constexpr const char* names[kCalls] = {"write",    "io_uring_enter", "fsync",  "rename",
                                         "truncate", "fallocate",      "unlink", "create"};
  return names[static_cast<std::size_t>(call)];
}

bool submit_to_tracer() {
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return false;
  ::raise(SIGSTOP);  // the tracer sets its options here
  std::vector<sock_filter> filter = make_filter();
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

bool Tracer::run_to(const CallPoint& point) {
  if (standing_ != 0) ::ptrace(PTRACE_CONT, std::exchange(standing_, 0), nullptr, 0L);
  while (!ended_) {
    int status = 0;
    const pid_t thread = wait_for_any(status);
    if (!WIFSTOPPED(status)) continue;
    if (!traced_) {
      traced_ = ::ptrace(PTRACE_SETOPTIONS, child_, nullptr,
                         PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACESECCOMP |
                             PTRACE_O_TRACESYSGOOD) == 0;
    }
    if (has_come_to(point, thread, status)) {
      standing_ = thread;
      leaving_ = 0;
      return true;
    }
    resume(thread, status);
  }
  return false;
}

bool Tracer::has_come_to(const CallPoint& point, pid_t thread, int status) {
  if (thread == leaving_ && is_call_stop(status)) return true;
  if (!is_event(status, PTRACE_EVENT_SECCOMP)) return false;
  unsigned long kind = 0;  // what the filter returned beside SECCOMP_RET_TRACE
  ::ptrace(PTRACE_GETEVENTMSG, thread, nullptr, &kind);
  const std::uint32_t nth = ++counts_.at(kind);
  history_.push_back(static_cast<Call>(kind));
  if (kind != static_cast<unsigned long>(point.call) || nth != point.nth) return false;
  if (point.edge == Edge::exit) leaving_ = thread;
  return point.edge == Edge::entry;
}

void Tracer::resume(pid_t thread, int status) {
  const auto how = thread == leaving_ ? PTRACE_SYSCALL : PTRACE_CONT;
  ::ptrace(how, thread, nullptr, signal_of(status));
}

void Tracer::run_others(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!ended_ && std::chrono::steady_clock::now() < end) {
    int status = 0;
    const pid_t thread = wait_for_any(status, WNOHANG);
    if (thread == 0) std::this_thread::yield();
    if (thread > 0 && WIFSTOPPED(status)) resume(thread, status);
  }
}

void Tracer::kill() {
  if (!ended_) ::kill(child_, SIGKILL);
  while (!ended_) {
    int status = 0;
    wait_for_any(status);
  }
}

// Threads that are traced must be waited for, or their process never ends.
pid_t Tracer::wait_for_any(int& status, int flags) {
  pid_t thread = 0;
  do {
    thread = ::waitpid(-1, &status, __WALL | flags);
  } while (thread < 0 && errno == EINTR);
  if (thread == child_ && !WIFSTOPPED(status)) {
    ended_ = true;
    status_ = status;
  }
  if (thread < 0) ended_ = true;
  return thread;
}

}  // namespace terrace::test
