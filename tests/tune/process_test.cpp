// The real binary: what its exit status and its two streams say.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/damage.hpp"
#include "tune/fixture.hpp"

namespace terrace::test {
namespace {

using testing::HasSubstr;

class TuneProcessTest : public DirectoryTest {
 protected:
  // Returns: the exit status; the streams' files are read by said().
  int run(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {TERRACE_TUNE_BINARY};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      redirect(out_, STDOUT_FILENO);
      redirect(err_, STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  static std::string said(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  const std::string out_ = directory_ / "out";
  const std::string err_ = directory_ / "err";

 private:
  static void redirect(const std::string& file, int fd) {
    const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (opened < 0 || ::dup2(opened, fd) < 0) ::_exit(126);
  }
};

TEST_F(TuneProcessTest, ExitStatusSaysWhatWasFound) {
  make(kWithoutIndex);
  EXPECT_EQ(run({"inspect", cache_, "--verify", "--json"}), 0) << said(err_);
  EXPECT_EQ(nlohmann::json::parse(said(out_))["records"]["good"], kBlocks);
  EXPECT_EQ(said(err_), "");
  EXPECT_EQ(run({"inspect", cache_, "--list", "--json"}), 0);
  const std::string lines = said(out_);
  const auto first = nlohmann::json::parse(lines.substr(0, lines.find('\n')));
  ASSERT_TRUE(
      flip_byte(data_, first["slot"].get<std::uint64_t>() * kRecordBytes + kRecordBytes / 2));
  EXPECT_EQ(run({"inspect", cache_}), 0);
  EXPECT_EQ(run({"inspect", cache_, "--verify"}), 1);
  EXPECT_THAT(said(out_), HasSubstr("payload_damaged"));
  EXPECT_EQ(run({"inspect", directory_ / "nowhere"}), 2);
  EXPECT_THAT(said(err_), HasSubstr("no such directory"));
  EXPECT_EQ(said(out_), "");
}

TEST_F(TuneProcessTest, HelpIsNoError) {
  EXPECT_EQ(run({"inspect", "--help"}), 0);
  EXPECT_THAT(said(out_), HasSubstr("Exit status"));
  EXPECT_EQ(run({}), 2);
}

// A cache in another process is seen by its lock, and named.
TEST_F(TuneProcessTest, AnotherProcessCacheIsNamed) {
  ToyEngine engine(options(kWithoutIndex), layout());
  EXPECT_EQ(run({"inspect", cache_}), 2);
  EXPECT_THAT(said(err_), HasSubstr("process " + std::to_string(::getpid())));
  EXPECT_EQ(run({"inspect", cache_, "--live"}), 0) << said(err_);
}

}  // namespace
}  // namespace terrace::test
