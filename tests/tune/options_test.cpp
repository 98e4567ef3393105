// What the command line says, and what is said about a bad one.
#include "tune/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace terrace::tune {
namespace {

using testing::HasSubstr;

struct Parsed {
  ParsedOptions result;
  std::string out;
  std::string err;
};

Parsed parse(const std::vector<const char*>& arguments) {
  std::vector<const char*> argv = {"terrace-tune"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::ostringstream out;
  std::ostringstream err;
  ParsedOptions result = parse_options(static_cast<int>(argv.size()), argv.data(), out, err);
  return {std::move(result), out.str(), err.str()};
}

TEST(TuneOptions, InspectTakesADirectoryAndSwitches) {
  const auto plain = parse({"inspect", "some/where"});
  ASSERT_TRUE(plain.result.inspect) << plain.err;
  EXPECT_EQ(plain.result.inspect->path, "some/where");
  EXPECT_FALSE(plain.result.inspect->verify || plain.result.inspect->list ||
               plain.result.inspect->json || plain.result.inspect->live);
  const auto all = parse({"inspect", "--verify", "--list", "here", "--json", "--live"});
  ASSERT_TRUE(all.result.inspect) << all.err;
  EXPECT_EQ(all.result.inspect->path, "here");
  EXPECT_TRUE(all.result.inspect->verify && all.result.inspect->list && all.result.inspect->json &&
              all.result.inspect->live);
}

TEST(TuneOptions, HelpHasExamplesAndTheExitStatus) {
  const auto help = parse({"inspect", "--help"});
  EXPECT_FALSE(help.result.inspect);
  EXPECT_EQ(help.result.exit_code, kClean);
  EXPECT_THAT(help.out, HasSubstr("terrace-tune inspect /var/tmp/terrace --verify"));
  EXPECT_THAT(help.out, HasSubstr("0 clean, 1 damage found, 2 cannot inspect"));
  EXPECT_THAT(parse({"--help"}).out, HasSubstr("inspect"));
}

TEST(TuneOptions, ABadCommandLineIsNoDamage) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> bad = {
      {{}, "subcommand"},
      {{"inspect"}, "DIR"},
      {{"mend", "here"}, "subcommand"},
      {{"inspect", "here", "there"}, "there"},
      {{"inspect", "here", "--repair"}, "--repair"}};
  for (const auto& [arguments, text] : bad) {
    const auto parsed = parse(arguments);
    EXPECT_FALSE(parsed.result.inspect) << text;
    EXPECT_EQ(parsed.result.exit_code, kCannotInspect) << text;
    EXPECT_THAT(parsed.err, HasSubstr(text));
  }
}

}  // namespace
}  // namespace terrace::tune
