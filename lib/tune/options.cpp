#include "tune/options.hpp"

#include <CLI/CLI.hpp>
#include <ostream>

namespace terrace::tune {
namespace {

constexpr const char* kFooter =
    R"(Nothing in the directory is created, changed or mended. While it is looked into, no cache can open it.
An entry of the index that is stale, a record twice, or an orphan is no damage: a crash and eviction
leave them, and each costs a hit at most. Of several drives, each directory is inspected by itself: a
parent on another drive shows as an orphan here.

Exit status: 0 clean, 1 damage found, 2 cannot inspect. Examples:

  terrace-tune inspect /var/tmp/terrace
  terrace-tune inspect /var/tmp/terrace --verify && echo every byte is as it was written
  terrace-tune inspect /var/tmp/terrace --list --json | jq 'select(.verdict != "good")'
  terrace-tune inspect /var/tmp/terrace --json --live | jq .records)";

void add_inspect(CLI::App& app, InspectOptions& options) {
  app.add_option("DIR", options.path, "Directory of an NVMe tier (--nvme-path of the server)")
      ->required()
      ->type_name("");
  app.add_flag("--verify", options.verify,
               "Also read every payload, and check each layer's digest");
  app.add_flag("--list", options.list,
               "One line a record instead of the summary: slot, key, depth, tokens, sequence, "
               "verdict");
  app.add_flag("--json", options.json, "For machines: one object; with --list, one a line");
  app.add_flag("--live", options.live,
               "Also while a cache has it open: figures may be moving then, and the index is not "
               "read");
  app.footer(kFooter);
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv, std::ostream& out,
                            std::ostream& err) {
  InspectOptions options;
  CLI::App app{"terrace-tune: looks into what terrace keeps", "terrace-tune"};
  app.require_subcommand(1);
  add_inspect(
      *app.add_subcommand("inspect", "Lists, verifies and summarises a cache directory, read-only"),
      options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, app.exit(error, out, err) == 0 ? kClean : kCannotInspect};
  }
  return {options, kClean};
}

}  // namespace terrace::tune
