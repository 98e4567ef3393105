// Flags over file over defaults, and what is said about bad values.
#include "serve/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "serve/fixture.hpp"

namespace terrace::serve {
namespace {

using testing::HasSubstr;

struct Parsed {
  ParsedOptions result;
  std::string out;
  std::string err;
};

Parsed parse(std::vector<std::string> arguments) {
  std::vector<const char*> argv = {"terrace-serve"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out;
  std::ostringstream err;
  ParsedOptions result = parse_options(static_cast<int>(argv.size()), argv.data(), out, err);
  return {std::move(result), out.str(), err.str()};
}

TEST(ServeOptions, Defaults) {
  const auto parsed = parse({});
  ASSERT_TRUE(parsed.result.options) << parsed.err;
  EXPECT_EQ(parsed.result.options->model, "builtin:small");
  EXPECT_EQ(parsed.result.options->hbm_bytes, 512 * MiB);
  EXPECT_EQ(parsed.result.options->block_tokens, 16u);
  EXPECT_FALSE(parsed.result.options->admin);
}

TEST(ServeOptions, FlagsWinOverFileOverDefaults) {
  const test::TemporaryDirectory directory;
  const std::string file = (directory.path() / "serve.conf").string();
  std::ofstream(file) << "hbm-bytes = 64MiB\ndram-bytes = \"1.5GiB\"\nport = 1234\nadmin = true\n"
                         "io-uring = false\nprefault = true\n";
  const auto parsed = parse({"--config", file, "--port", "4321", "--no-prefault"});
  ASSERT_TRUE(parsed.result.options) << parsed.err;
  const ServeOptions& options = *parsed.result.options;
  EXPECT_EQ(options.port, 4321);
  EXPECT_EQ(options.hbm_bytes, 64 * MiB);
  EXPECT_EQ(options.dram_bytes, 1536 * MiB);
  EXPECT_TRUE(options.admin);
  EXPECT_FALSE(options.io_uring);
  EXPECT_FALSE(options.prefault);
  EXPECT_TRUE(options.direct_io);
}

TEST(ServeOptions, HelpNamesEveryDefault) {
  const auto parsed = parse({"--help"});
  EXPECT_FALSE(parsed.result.options);
  EXPECT_EQ(parsed.result.exit_code, 0);
  for (const char* text :
       {"--hbm-bytes", "512 MiB", "1 GiB", "builtin:small", "--config", "--no-io-uring"}) {
    EXPECT_THAT(parsed.out, HasSubstr(text));
  }
}

struct Bad {
  std::vector<std::string> arguments;
  const char* says;
};

class BadOptions : public testing::TestWithParam<Bad> {};

TEST_P(BadOptions, AreNamed) {
  const auto parsed = parse(GetParam().arguments);
  EXPECT_FALSE(parsed.result.options);
  EXPECT_NE(parsed.result.exit_code, 0);
  EXPECT_THAT(parsed.err, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Values, BadOptions,
    testing::Values(Bad{{"--hbm-bytes", "12MB"}, "--hbm-bytes: '12MB'"},
                    Bad{{"--hbm-bytes", "0"}, "--hbm-bytes"},
                    Bad{{"--dram-bytes", "-1"}, "--dram-bytes"}, Bad{{"--port", "65536"}, "--port"},
                    Bad{{"--port", "x"}, "--port"}, Bad{{"--block-tokens", "0"}, "--block-tokens"},
                    Bad{{"--device", "tpu"}, "--device"},
                    Bad{{"--nvme-bytes", "1GiB"}, "--nvme-path"}, Bad{{"--model", ""}, "--model"},
                    Bad{{"--config", "absent.conf"}, "absent.conf"},
                    Bad{{"--unknown"}, "--unknown"}, Bad{{"extra"}, "extra"}));

TEST(ServeOptions, UnknownNameInTheFileIsAnError) {
  const test::TemporaryDirectory directory;
  const std::string file = (directory.path() / "serve.conf").string();
  std::ofstream(file) << "hbm-byte = 64MiB\n";
  const auto parsed = parse({"--config", file});
  EXPECT_FALSE(parsed.result.options);
  EXPECT_THAT(parsed.err, HasSubstr("hbm-byte"));
}

}  // namespace
}  // namespace terrace::serve
