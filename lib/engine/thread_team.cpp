#include "engine/thread_team.hpp"

#include <sched.h>

#include <algorithm>

// Declared here because omp.h comes with a compiler's own OpenMP, and the library's is always
// GNU's.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}

namespace terrace::engine {
namespace {

// Long enough to bridge the serial parts between two steps, short enough (about 20 us) not to burn
// a shared machine.
constexpr int kSpinsBeforeSleep = 1000;

void pause_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` is no longer `old`.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) noexcept {
  for (int spin = 0; spin < kSpinsBeforeSleep; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_core();
  }
  value.wait(old, std::memory_order_acquire);
}

unsigned cores_of_process() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

SingleThreadedLibrary::SingleThreadedLibrary() : before_(omp_get_max_threads()) {
  omp_set_num_threads(1);
}

SingleThreadedLibrary::~SingleThreadedLibrary() {
  omp_set_num_threads(before_);
}

ThreadTeam::ThreadTeam(unsigned threads) {
  const unsigned size = threads == 0 ? cores_of_process() : threads;
  for (unsigned thread = 1; thread < size; ++thread) {
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::run(std::uint32_t count, Call call, void* self) {
  if (count <= 1 || workers_.empty()) {  // nothing to share
    for (std::uint32_t index = 0; index < count; ++index) call(self, index, 0);
    return;
  }
  call_ = call;
  self_ = self;
  count_ = count;
  failure_ = nullptr;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();

  take_indices(0);
  for (std::uint32_t busy = busy_.load(std::memory_order_acquire); busy != 0;
       busy = busy_.load(std::memory_order_acquire)) {
    wait_while(busy_, busy);
  }
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void ThreadTeam::work(unsigned thread) {
  const SingleThreadedLibrary single;
  std::uint32_t seen = 0;
  while (true) {
    wait_while(generation_, seen);
    ++seen;  // a job is published only after the one before has ended, so no generation is skipped
    if (stopping_) return;
    take_indices(thread);
    busy_.fetch_sub(1, std::memory_order_acq_rel);
    busy_.notify_all();
  }
}

void ThreadTeam::take_indices(unsigned thread) {
  try {
    for (std::uint32_t index = next_.fetch_add(1, std::memory_order_relaxed); index < count_;
         index = next_.fetch_add(1, std::memory_order_relaxed)) {
      call_(self_, index, thread);
    }
  } catch (...) {
    const std::lock_guard lock(failure_mutex_);
    if (failure_ == nullptr) failure_ = std::current_exception();
  }
}

}  // namespace terrace::engine
