#include "serve/options.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <ostream>

namespace terrace::serve {
namespace {

// Sizes are text in flags and in the file; what parse_bytes() says about a bad one reaches the
// user.
void add_size(CLI::App& app, const std::string& flag, std::uint64_t& bytes,
              const std::string& help) {
  app.add_option_function<std::string>(
         flag,
         [flag, &bytes](const std::string& text) {
           auto parsed = parse_bytes(text);
           if (!parsed)
             throw CLI::ValidationError(flag, "'" + text + "': " + parsed.error().message);
           bytes = *parsed;
         },
         help)
      ->type_name("SIZE")
      ->default_str(format_bytes(bytes));
}

// On unless turned off. The other way round it is for files, where a line says 'prefault = false'; it
// comes first, so that flags win.
void add_switch(CLI::App& app, const std::string& name, bool& value, const std::string& help) {
  app.add_flag("--" + name, value)->group("");
  app.add_flag_callback(
      "--no-" + name, [&value] { value = false; }, help);
}

void add_server_options(CLI::App& app, ServeOptions& options) {
  app.set_config("--config", "", "Read options from a file of 'name = value' lines; flags win")
      ->type_name("FILE");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.add_option("--model", options.model,
                 "builtin:tiny, builtin:small, or a Hugging Face directory (config.json, "
                 "safetensors, tokenizer.json)")
      ->type_name("MODEL")
      ->capture_default_str();
  app.add_option("--device", options.device, "Where the model computes: host or cuda")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->type_name("DEVICE")
      ->capture_default_str();
  app.add_option("--host", options.host, "Address to listen on")
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_option("--port", options.port, "Port to listen on; 0: a free one, printed")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT")
      ->capture_default_str();
  app.add_flag("--admin", options.admin,
               "Offer POST /admin/cache/drop, which empties tiers (for tests and demos)");
}

void add_cache_options(CLI::App& app, ServeOptions& options) {
  app.add_option("--block-tokens", options.block_tokens, "Tokens a block: the unit of reuse")
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  add_size(app, "--hbm-bytes", options.hbm_bytes,
           "Cap of the HBM tier (host memory on --device host)");
  add_size(app, "--dram-bytes", options.dram_bytes, "Cap of the DRAM tier; 0: none");
  app.add_option("--nvme-path", options.nvme_paths,
                 "Directory of the NVMe tier, one server's own; again for each further drive; "
                 "absent: no NVMe tier")
      ->type_name("DIR")
      ->allow_extra_args(false);
  add_size(app, "--nvme-bytes", options.nvme_bytes, "Cap of these directories together");
  add_size(app, "--nvme-write-bytes-per-day", options.nvme_write_bytes_per_day,
           "What a day may wear the drives; 0: no limit");
  add_size(app, "--nvme-scrub-bytes-per-second", options.nvme_scrub_bytes_per_second,
           "Read and verify records in the background; 0: off");
  add_switch(app, "huge-pages", options.huge_pages, "Do not ask for huge pages");
  add_switch(app, "prefault", options.prefault, "Do not touch the DRAM tier at start");
  add_switch(app, "io-uring", options.io_uring, "NVMe without io_uring");
  add_switch(app, "direct-io", options.direct_io, "NVMe through the page cache");
}

constexpr const char* kFooter =
    R"(Sizes are binary: 4096, 64KiB, 512MiB, 1.5GiB. The defaults suit builtin:small.
KV of one token: 2 x layers x KV heads x head size x 4 bytes (12 KiB for builtin:small); HBM must hold
the longest request. Example:

  terrace-serve --model builtin:small --nvme-path /var/tmp/terrace --port 8000
  curl http://127.0.0.1:8000/v1/completions -d '{"prompt": "Once upon a time", "max_tokens": 32})"
    R"('

GET /health /metrics /v1/models, POST /v1/completions; SIGTERM finishes what runs, writes the cache, exits 0.)";

// What no single option can check.
void check_together(const CLI::App& app, const ServeOptions& options) {
  if (options.nvme_paths.empty() && app.count("--nvme-bytes") > 0) {
    throw CLI::ValidationError("--nvme-bytes",
                               "has no effect without --nvme-path DIR: name a directory");
  }
  if (options.hbm_bytes == 0) {
    throw CLI::ValidationError("--hbm-bytes",
                               "0 leaves no room for any request: give at least 64MiB");
  }
  if (options.model.empty()) {
    throw CLI::ValidationError("--model",
                               "is empty: give builtin:tiny, builtin:small or a directory");
  }
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv, std::ostream& out,
                            std::ostream& err) {
  ServeOptions options;
  CLI::App app{"terrace-serve: a completion server that keeps KV in HBM, DRAM and NVMe",
               "terrace-serve"};
  app.footer(kFooter);
  add_server_options(app, options);
  add_cache_options(app, options);
  try {
    app.parse(argc, argv);
    check_together(app, options);
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, app.exit(error, out, err)};
  }
  options.digest_cache = user_cache_directory();
  return {options, 0};
}

std::filesystem::path user_cache_directory() {
  const char* cache_home = std::getenv("XDG_CACHE_HOME");
  if (cache_home != nullptr && *cache_home == '/')
    return std::filesystem::path(cache_home) / "terrace";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::filesystem::path(home) / ".cache" / "terrace";
  return {};
}

}  // namespace terrace::serve
