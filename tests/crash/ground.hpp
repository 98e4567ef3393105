// One directory that lives are led and ended on, and what is known of it from outside.
//
// Thread rule: the process that has a Ground must have no thread of RocksDB, which a fork would
// leave behind.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <system_error>
#include <thread>

#include "crash/examine.hpp"
#include "crash/tracer.hpp"
#include "io/child_process.hpp"

namespace terrace::test {

class Ground {
 public:
  using Story = std::function<void(Life&)>;

  explicit Ground(const Geometry& geometry) : geometry_(geometry) {}

  const Geometry& geometry() const { return geometry_; }
  // From now on lives and examinations open it as one of `geometry`.
  void use(const Geometry& geometry) { geometry_ = geometry; }
  std::string directory() const { return folder_.path(); }
  const Journal& journal() const { return *journal_; }
  const Findings& findings() const { return journal_->findings; }
  std::uint32_t second_openers_refused() const { return second_openers_refused_; }

  // Whether a process may trace another here, and filter its own calls.
  static bool may_trace() {
    const pid_t child = fork_or_throw();
    if (child == 0) ::_exit(submit_to_tracer() ? 0 : not_permitted);
    Tracer tracer(child);
    tracer.run_to_end();
    return WIFEXITED(tracer.status()) && WEXITSTATUS(tracer.status()) == 0;
  }

  // A whole life. Returns: how many calls of each kind it made.
  Tracer::Counts lead_life(std::uint64_t seed) {
    Tracer tracer(begin(seed, true, to_the_end));
    tracer.run_to_end();
    expect_good_end(tracer.status());
    learn();
    return tracer.counts();
  }

  // A life that is killed at `point`. Returns: false where it ended before it came there.
  bool kill_at(const CallPoint& point, std::uint64_t seed) {
    Tracer tracer(begin(seed, true, to_the_end));
    const bool came = tracer.run_to(point);
    if (came) {
      try_second_opener();
      tracer.kill();
    } else {
      expect_good_end(tracer.status());
    }
    learn();
    return came;
  }

  // A life that would not end is killed so long after its begin.
  void kill_after(std::chrono::microseconds time, std::uint64_t seed) {
    const pid_t child = begin(seed, false, [](Life& life) { life.load(~0U); });
    for (int i = 0; i < 20'000 && journal_->phase == Phase::unborn; ++i)
      std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(time);
    try_second_opener();
    kill(child);
  }

  // A life that has told `story`, and waits, is killed.
  void kill_after(const Story& story, std::uint64_t seed) {
    const pid_t child = begin(seed, false, story);
    for (int i = 0; i < 20'000 && journal_->phase != Phase::waiting; ++i)
      std::this_thread::sleep_for(1ms);
    kill(child);
  }

  // A life that tells `story` while RocksDB's log takes no write any more, is killed when it has
  // flushed, or after a while in which it has not.
  void kill_with_the_log_held_up(const Story& story, std::uint64_t seed) {
    Tracer tracer(begin(seed, true, story));
    CallPoint write{.call = Call::write, .nth = 0, .edge = Edge::entry};
    do {
      ++write.nth;
    } while (tracer.run_to(write) && journal_->phase != Phase::serving);
    for (int i = 0; i < 1000 && journal_->flushes == 0; ++i) tracer.run_others(1ms);
    tracer.kill();
    learn();
  }

  bool has_index() const { return std::filesystem::exists(directory() + "/index"); }
  // What is left is found by a scan then.
  void forget_index() const { std::filesystem::remove_all(directory() + "/index"); }

  // Returns: 0 where all is as it must be. What is not is printed, if `aloud`.
  int examination(bool close, bool aloud = true) {
    journal_->findings = {};
    return run_in_child([&] {
      if (!aloud) silence();
      ::alarm(kPatience);
      Examination(geometry_, directory(), *journal_).go(close);
      return 0;
    });
  }
  void examine(bool close = true) {
    EXPECT_EQ(examination(close), 0) << "not as it must be after a kill: see above";
  }

 private:
  static constexpr unsigned kPatience = 120;  // seconds; whoever hangs is killed by SIGALRM
  static constexpr std::uint32_t kPrompts = 40;

  // Never -1, which means everybody where it is given to kill().
  static pid_t fork_or_throw() {
    const pid_t child = ::fork();
    if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
    return child;
  }

  static void to_the_end(Life& life) {
    life.load(kPrompts);
    life.close();
  }

  pid_t begin(std::uint64_t seed, bool traced, const Story& story) {
    journal_->phase = Phase::unborn;
    journal_->flushes = 0;
    const pid_t child = fork_or_throw();
    if (child != 0) return child;
    ::alarm(kPatience);
    if (traced && !submit_to_tracer()) ::_exit(not_permitted);
    Life life(geometry_, directory(), seed, *journal_);
    story(life);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }

  void kill(pid_t child) {
    ::kill(child, SIGKILL);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        << "a life that was to be killed ended with " << status;
    learn();
  }

  static void silence() {
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
  }

  static void expect_good_end(int status) {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "a life that was not killed ended with " << status;
  }

  // I23: while the owner lives, nobody else gets in.
  void try_second_opener() {
    if (journal_->phase != Phase::serving) return;
    const auto second = Cache::open(geometry_.options(directory()), geometry_.layout());
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::busy);
    ++second_openers_refused_;
  }

  // Of a life that was killed before it had opened the directory, what was known before holds.
  void learn() {
    if (journal_->phase < Phase::serving) return;
    std::map<BlockKey, Standing, KeyOrder> before;
    for (const Journal::Copy& copy : journal_->known) {
      if (copy.standing != Standing::absent) before[copy.key] = copy.standing;
    }
    for (std::size_t i = 0; i < journal_->copies.size(); ++i) {
      const Journal::Copy& copy = journal_->copies[i];
      const Standing standing = copy.standing;
      journal_->known[i].key = copy.key;
      journal_->known[i].standing = standing == Standing::recovered ? before[copy.key] : standing;
    }
  }

  Geometry geometry_;
  TemporaryFolder folder_;
  Shared<Journal> journal_;
  std::uint32_t second_openers_refused_ = 0;
};

}  // namespace terrace::test
