// Kind CONCURRENT-PROCESS, and what programs that a host starts inherit from it.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

#include <thread>

#include "fault/world.hpp"

extern char** environ;

namespace terrace::test {
namespace {

bool has_open(pid_t process, const std::string& folder) {
  const std::string descriptors = "/proc/" + std::to_string(process) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(descriptors)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().starts_with(folder)) return true;
  }
  return false;
}

// O062: a program that outlives the host which started it, while the directory was in use.
TEST(ConcurrentProcess, AProgramThatTheHostStartedKeepsNoLock) {
  TemporaryFolder folder;
  const Options options = toy_options(16, 16, folder.path());
  int started[2];
  ASSERT_EQ(::pipe2(started, O_CLOEXEC), 0);
  EXPECT_EQ(run_in_child([&] {
              ToyEngine engine(options);
              engine.serve(tokens_from(0, 41));
              char name[] = "sleep";
              char time[] = "100";
              char* arguments[] = {name, time, nullptr};
              pid_t program = 0;
              if (::posix_spawnp(&program, name, nullptr, nullptr, arguments, environ) != 0)
                return 1;
              (void)!::write(started[1], &program, sizeof program);
              ::_exit(0);  // without close()
            }),
            0);
  pid_t program = 0;
  ASSERT_EQ(::read(started[0], &program, sizeof program), static_cast<ssize_t>(sizeof program));
  // A starting program gives up what it must not inherit a moment after its host goes on.
  const auto is_busy = [&] {
    const auto opened = Cache::open(options, toy_layout());
    return !opened && opened.error().code == Code::busy;
  };
  for (int i = 0; i < 1000 && is_busy(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(has_open(program, folder.path()));
  {
    ToyEngine engine(options);
    EXPECT_EQ(engine.serve(tokens_from(0, 41)).cached_by_place[kNvme0], 40U);
  }
  EXPECT_EQ(::kill(program, SIGKILL), 0) << "it has ended: nothing is shown";
  ::close(started[0]);
  ::close(started[1]);
}

}  // namespace
}  // namespace terrace::test
