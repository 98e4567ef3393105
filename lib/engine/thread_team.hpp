// A fixed team of threads that share the steps of one computation: fork, work, join.
//
// The forward pass forks some forty times a token, so a join must cost about a microsecond: threads
// spin briefly before they sleep. OpenMP's own team inside the matrix library is kept at one
// thread: two teams would fight for the cores. Called by the forward pass and the loaders.
// Thread rule: for_each() from one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace terrace::engine {

// While it lives, the matrix library runs on the calling thread alone. Restores what was set
// before.
class SingleThreadedLibrary {
 public:
  SingleThreadedLibrary();
  SingleThreadedLibrary(const SingleThreadedLibrary&) = delete;
  SingleThreadedLibrary& operator=(const SingleThreadedLibrary&) = delete;
  ~SingleThreadedLibrary();

 private:
  int before_;
};

class ThreadTeam {
 public:
  // `threads` includes the caller's own; 0 means one for each core of the process.
  explicit ThreadTeam(unsigned threads);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  unsigned size() const noexcept { return static_cast<unsigned>(workers_.size()) + 1; }

  // Calls body(index, thread) once for every index in [0, count), on any of the threads [0,
  // size()), and returns when all calls have. Rethrows the first exception of a body; the other
  // indices may or may not have run then.
  template <class Body>
  void for_each(std::uint32_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        count,
        [](void* self, std::uint32_t index, unsigned thread) {
          (*static_cast<Plain*>(self))(index, thread);
        },
        &body);
  }

 private:
  using Call = void (*)(void* self, std::uint32_t index, unsigned thread);

  void run(std::uint32_t count, Call call, void* self);
  void work(unsigned thread);
  void take_indices(unsigned thread);

  // The job of the current generation; written before generation_ is raised.
  Call call_ = nullptr;
  void* self_ = nullptr;
  std::uint32_t count_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::mutex failure_mutex_;

  std::atomic<std::uint32_t> next_{0};        // next index to take
  std::atomic<std::uint32_t> generation_{0};  // raised once a job
  std::atomic<std::uint32_t> busy_{0};        // workers that have not finished the job
  std::vector<std::thread> workers_;
};

}  // namespace terrace::engine
