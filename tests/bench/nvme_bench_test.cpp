// nvme_bench --quick: the rows that tools read are there, and nothing is left behind.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "index/sample.hpp"

namespace terrace::test {
namespace {

using nlohmann::json;

TEST(NvmeBench, QuickRunWritesEveryRow) {
  const TempDir directory(std::filesystem::current_path());
  const std::string file = directory / "figures.json";
  const std::string command = std::string(TERRACE_NVME_BENCH_BINARY) +
                              " --quick --no-peers --path " + directory.path() + " --json " + file +
                              " >" + (directory / "table");
  const int status = std::system(command.c_str());
  std::ifstream table(directory / "table");
  ASSERT_EQ(status, 0) << table.rdbuf();
  const json report = json::parse(std::ifstream(file));

  for (const char* fact : {"cpu", "cores", "kernel", "filesystem", "load_at_start"})
    EXPECT_TRUE(report["machine"].contains(fact)) << fact;
  for (const char* fact : {"io_uring", "direct", "registered_buffers", "huge_pages"})
    EXPECT_TRUE(report["device"][fact].is_boolean()) << fact;
  EXPECT_EQ(report["date"].get<std::string>().size(), 20U);
  EXPECT_NE(report["command"].get<std::string>().find("--quick"), std::string::npos);

  std::set<std::pair<std::string, std::uint64_t>> seen;
  for (const json& row : report["rows"]) {
    seen.emplace(row["op"], row["block_bytes"]);
    for (const char* figure : {"ours_gbps", "limit_gbps", "ratio", "ratio_p25", "ratio_p75",
                               "cpu_s_per_gb", "limit_cpu_s_per_gb", "cpu_ratio"}) {
      ASSERT_TRUE(row[figure].is_number()) << figure << " of " << row;
      EXPECT_GE(row[figure].get<double>(), 0) << figure << " of " << row;
    }
    EXPECT_EQ(row["queue_depth"], 4);
    EXPECT_EQ(row["op"] == "read_verified", row.contains("unverified_ratio")) << row;
    EXPECT_EQ(row["run_blocks"] > 1, row.contains("single_ratio")) << row;
  }
  for (const std::uint64_t block_bytes : {64U << 10, 256U << 10, 1U << 20, 2U << 20}) {
    for (const char* op : {"read", "read_verified", "write", "write_unsealed"})
      EXPECT_TRUE(seen.contains({op, block_bytes})) << op << " " << block_bytes;
    for (const char* op : {"read_run", "write_run"})
      EXPECT_EQ(seen.contains({op, block_bytes}), block_bytes < (1U << 20)) << op << block_bytes;
  }
  EXPECT_FALSE(std::filesystem::exists(directory / "nvme_bench.tmp"));
}

TEST(NvmeBench, ABadCommandLineIsNamed) {
  const std::string binary = TERRACE_NVME_BENCH_BINARY;
  EXPECT_NE(std::system((binary + " --path /nowhere 2>/dev/null").c_str()), 0);
  EXPECT_NE(std::system((binary + " --path . --blocks 3KiB >/dev/null 2>&1").c_str()), 0);
  EXPECT_NE(std::system((binary + " --path . --file-bytes 1GB >/dev/null 2>&1").c_str()), 0);
}

}  // namespace
}  // namespace terrace::test
