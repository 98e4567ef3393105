// Every switch of terrace-serve, and where its value comes from: flags over --config file over
// defaults.
//
// The only place of the server that reads the environment (for the user's cache directory). Never
// opens anything. Called by main() and tests.
// Thread rule: plain values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "terrace/units.hpp"

namespace terrace::serve {

// The sizes fit builtin:small, whose KV takes 12 KiB a token: HBM holds two contexts of 16,384
// tokens, DRAM five. They are constants on purpose: a server must not behave differently because of
// the machine it meets.
struct ServeOptions {
  std::string model = "builtin:small";  // builtin:tiny, builtin:small or a Hugging Face directory
  std::string device = "host";          // host or cuda
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: a free one
  std::uint32_t block_tokens = 16;
  std::uint64_t hbm_bytes = 512 * MiB;
  std::uint64_t dram_bytes = 1 * GiB;
  std::vector<std::string> nvme_paths;  // empty: no NVMe tier
  std::uint64_t nvme_bytes = 4 * GiB;
  std::uint64_t nvme_write_bytes_per_day = 0;
  std::uint64_t nvme_scrub_bytes_per_second = 0;
  bool huge_pages = true;
  bool prefault = true;
  bool io_uring = true;
  bool direct_io = true;
  bool admin = false;                  // POST /admin/cache/drop
  std::filesystem::path digest_cache;  // where weights digests are remembered; empty: nowhere
};

struct ParsedOptions {
  std::optional<ServeOptions> options;  // absent: --help, or an error that was printed
  int exit_code = 0;
};

// Parses the command line and the file it names. Help goes to `out`, errors to `err`.
ParsedOptions parse_options(int argc, const char* const* argv, std::ostream& out,
                            std::ostream& err);

// $XDG_CACHE_HOME/terrace, else ~/.cache/terrace. Returns: the path; empty where neither is known.
std::filesystem::path user_cache_directory();

}  // namespace terrace::serve
