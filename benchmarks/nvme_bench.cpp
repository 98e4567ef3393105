// The NVMe tier against the shortest io_uring loop, on one file, in one run.
//
//   nvme_bench --path DIR [--json FILE] [--file-bytes SIZE] [--depths N,N] [--blocks SIZE,SIZE]
//              [--rounds N] [--no-peers] [--quick]
//
// What is compared. Ours is the cache's own transfers between a DRAM tier on huge pages and an NVMe
// tier, blocks pinned, evicted and published as ever: `read_verified` and `write` as the cache does
// it, every digest and token of each record compared, each record sealed; `read` and
// `write_unsealed`, the same without the hashes, and so without the portions of 1 MiB in which writes
// are submitted, that the drive may work while the next ones are sealed. The limit (BareLoop) moves
// requests of the size of our record, header and alignment included, at the same offsets of the same
// file, as many at a time, with as much memory. Figures of both are payload a second, so that `ratio` is what our code
// costs. `payload` is the ratio over a limit that moves the payload alone, packed: what the header
// costs is in there, too. `read_run` and `write_run` move up to 1 MiB of consecutive slots a
// request, whose DRAM slots lie together as far as the mover's do; their limit moves as much in one piece;
// `single_ratio` is over our own requests of one block with the same bytes in flight,
// `single_depth_ratio` over as many requests of one block. CPU is of the whole process.
//
// The file is written once before anything is measured, so that no figure pays for its extents, and
// every measurement reads or writes the next part of one fixed random order of its slots: each has
// gone as long without being touched. Contestants take turns, see nvme/sample.hpp. Where others use
// the machine, too, the quartiles say how much a median is worth.
//
// Peers, labelled: fio with the same requests, and a file a block through the page cache.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>

#include "nvme/bare_loop.hpp"
#include "nvme/machine.hpp"
#include "nvme/our_loop.hpp"
#include "nvme/peers.hpp"
#include "nvme/rows.hpp"
#include "terrace/units.hpp"

namespace {

using namespace terrace;
using namespace terrace::bench;
using nlohmann::json;
using Work = OurLoop::Work;

// A measurement moves a part of the file, but no fewer requests than several queue depths: filling
// and draining the queue is not what is measured.
constexpr std::uint32_t kParts = 64;
constexpr std::uint32_t kDepthsMin = 24;
constexpr std::uint32_t kPeerRoundsMax = 5;
constexpr std::uint64_t kRunBytes = 1 * MiB;  // as lib/move/nvme_transfers.cpp

struct Options {
  std::string path;
  std::string json_file;
  std::uint64_t file_bytes = 4 * GiB;
  std::vector<std::uint32_t> depths = {8, 32};
  std::vector<std::uint64_t> blocks = {64 * KiB, 256 * KiB, 1 * MiB, 2 * MiB};
  std::uint32_t rounds = 31;
  bool peers = true;
};

// Blocks of 16 tokens in bf16, of models that exist: the largest is an 8B Llama's.
Layout layout_of(std::uint64_t block_bytes) {
  switch (block_bytes) {
    case 64 * KiB:
      return Layout::full(8, 2, 64, KvDtype::bf16);
    case 256 * KiB:
      return Layout::full(16, 4, 64, KvDtype::bf16);
    case 1 * MiB:
      return Layout::full(32, 8, 64, KvDtype::bf16);
    case 2 * MiB:
      return Layout::full(32, 8, 128, KvDtype::bf16);
  }
  throw std::runtime_error("--blocks: 64KiB, 256KiB, 1MiB and 2MiB are known");
}

// Runs of slots in a fixed random order, part by part, round and round.
class Order {
 public:
  Order(std::uint32_t slot_count, std::uint32_t run_blocks) {
    for (std::uint32_t slot = 0; slot + run_blocks <= slot_count; slot += run_blocks)
      first_slots_.push_back(slot);
    std::ranges::shuffle(first_slots_, std::mt19937(1));
  }
  std::span<const std::uint32_t> next(std::size_t count) {
    count = std::min(count, first_slots_.size());
    if (at_ + count > first_slots_.size()) at_ = 0;
    at_ += count;
    return std::span(first_slots_).subspan(at_ - count, count);
  }

 private:
  std::vector<std::uint32_t> first_slots_;
  std::size_t at_ = 0;
};

// One size of blocks: the store, and who moves its records.
class SizeBench {
 public:
  SizeBench(const Options& options, std::uint64_t block_bytes)
      : options_(options),
        layout_(layout_of(block_bytes)),
        tiers_(layout_, 4096),
        format_(tiers_.format),
        run_blocks_(static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(kRunBytes / format_.record_bytes(), 1, kIoPiecesMax))),
        depth_max_(std::ranges::max(options.depths)),
        directory_(options.path + "/nvme_bench.tmp") {
    allocate();
    open();
    slot_count_ = tiers_.nvme->slot_count();
    ours_.emplace(tiers_);
    singles_ = Order(slot_count_, 1);
    runs_ = Order(slot_count_, run_blocks_);
    std::vector<std::uint32_t> all(slot_count_);
    std::iota(all.begin(), all.end(), 0U);
    ours_->prepare(Work::write, std::min(8U, depth_max_), 1);
    ours_->run(all);
  }
  ~SizeBench() {
    tiers_.nvme.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  SizeBench(const SizeBench&) = delete;
  SizeBench& operator=(const SizeBench&) = delete;

  // Reads first: what the limit and fio write is no record.
  void run(json& rows) {
    for (const bool write : {false, true}) {
      for (const std::uint32_t depth : options_.depths) compare(depth, write, rows);
    }
    if (options_.peers) compare_files(rows);
  }

  json facts() {
    const BlockDeviceFacts facts = tiers_.nvme->facts().device;
    return {{"io_uring", facts.io_uring},
            {"direct", facts.direct},
            {"registered_buffers", facts.registered_buffers},
            {"huge_pages", tiers_.dram.memory.huge_pages()}};
  }

 private:
  void allocate() {
    internal::DramTier& dram = tiers_.dram;
    dram.slot_count = 2 * depth_max_ * run_blocks_;
    dram.stride_bytes = format_.record_bytes();
    dram.payload_offset = format_.header_bytes();
    auto memory = internal::HostMemory::allocate(dram.slot_count * dram.stride_bytes, {});
    if (!memory) throw std::runtime_error(memory.error().message);
    dram.memory = std::move(*memory);
  }

  void open() {
    std::filesystem::remove_all(directory_);
    internal::NvmeStoreOptions how;
    how.bytes_max = options_.file_bytes;
    how.queue_depth_max = depth_max_ * run_blocks_;
    how.buffers = tiers_.dram.memory.bytes();
    how.slot_index = [](const std::string&) { return internal::make_null_slot_index(); };
    auto tier = internal::NvmeTier::open(std::span(&directory_, 1), how, layout_, format_);
    if (!tier) throw std::runtime_error(tier.error().message);
    tiers_.nvme = std::move(*tier);
  }

  // Short measurements, and many: what disturbs one contestant disturbs the others in turn.
  std::uint32_t measured_slots(std::uint32_t depth) const {
    const std::uint32_t most = slot_count_;
    return std::clamp(most / kParts, std::min(most, kDepthsMin * depth * run_blocks_), most);
  }

  std::string data_file() const { return directory_ + "/blocks.dat"; }

  void add_ours(Rounds& rounds, const char* name, Work work, std::uint32_t depth,
                std::uint32_t run_blocks) {
    rounds.add(name, [this, work, depth, run_blocks] {
      Order& order = run_blocks == 1 ? singles_ : runs_;
      const auto first_slots = order.next(measured_slots(depth) / run_blocks);
      ours_->prepare(work, depth, run_blocks);
      return measure(first_slots.size() * run_blocks * format_.payload_bytes(),
                     [&] { ours_->run(first_slots); });
    });
  }

  // Requests of `stride` bytes a block, run by run.
  void add_limit(Rounds& rounds, const char* name, bool write, std::uint32_t depth,
                 std::uint64_t stride, std::uint32_t run_blocks) {
    const auto request_bytes = static_cast<std::uint32_t>(stride * run_blocks);
    const std::span<std::byte> memory = tiers_.dram.memory.bytes();
    std::vector<std::byte*> buffers = ours_->memory();
    if (run_blocks > 1) buffers.resize(memory.size() / request_bytes);
    for (std::size_t i = 0; run_blocks > 1 && i < buffers.size(); ++i)
      buffers[i] = memory.data() + i * request_bytes;
    limits_.emplace_back(data_file(), request_bytes, depth, memory, std::move(buffers));
    rounds.add(name, [this, write, depth, stride, run_blocks, &loop = limits_.back()] {
      Order& order = run_blocks == 1 ? singles_ : runs_;
      std::vector<std::uint64_t> offsets;
      for (const std::uint32_t slot : order.next(measured_slots(depth) / run_blocks))
        offsets.push_back(slot * stride);
      return measure(offsets.size() * run_blocks * format_.payload_bytes(),
                     [&] { write ? loop.write(offsets) : loop.read(offsets); });
    });
  }

  void add_runs(Rounds& rounds, bool write, std::uint32_t depth) {
    const Work work = write ? Work::write : Work::read;
    add_ours(rounds, write ? "write_run" : "read_run", work, depth, run_blocks_);
    add_ours(rounds, "single", work, depth * run_blocks_, 1);
    add_limit(rounds, "run_limit", write, depth, format_.record_bytes(), run_blocks_);
  }

  void compare(std::uint32_t depth, bool write, json& rows) {
    Rounds rounds;
    limits_.clear();
    const char* plain = write ? "write" : "read";
    const char* other = write ? "write_unsealed" : "read_verified";
    add_ours(rounds, plain, write ? Work::write : Work::read, depth, 1);
    add_ours(rounds, other, write ? Work::write_unsealed : Work::read_verified, depth, 1);
    add_limit(rounds, "limit", write, depth, format_.record_bytes(), 1);
    add_limit(rounds, "payload_limit", write, depth, format_.payload_bytes(), 1);
    if (run_blocks_ > 1) add_runs(rounds, write, depth);
    rounds.run(options_.rounds);

    const RowPlace place{layout_.block_bytes(), depth, 1};
    const auto put = [&rows](const json& row) {
      print_row(row);
      rows.push_back(row);
    };
    put(row_of(rounds, {plain, "limit", "payload_limit"}, place));
    RowSpec second{other, "limit", "payload_limit"};
    if (!write) second.bases = {{plain, "unverified_ratio"}};
    put(row_of(rounds, second, place));
    if (run_blocks_ > 1) {
      put(row_of(rounds,
                 {write ? "write_run" : "read_run",
                  "run_limit",
                  "",
                  {{"single", "single_ratio"}, {plain, "single_depth_ratio"}}},
                 {place.block_bytes, depth, run_blocks_}));
    }
    if (options_.peers && has_fio()) put(fio_row(write, place));
  }

  // Rounds of its own: whoever comes after the start of another program is not measured alike.
  json fio_row(bool write, const RowPlace& place) {
    Rounds rounds;
    limits_.clear();
    const FioJob job{data_file(),
                     write,
                     format_.record_bytes(),
                     format_.payload_bytes(),
                     place.queue_depth,
                     measured_slots(place.queue_depth)};
    rounds.add("fio", [job] { return run_fio(job); });
    add_limit(rounds, "limit", write, place.queue_depth, format_.record_bytes(), 1);
    rounds.run(std::min(options_.rounds, kPeerRoundsMax));
    json row = peer_row(write ? "fio_write" : "fio_read", "fio, the limit's requests",
                        {rounds.gbps("fio"), rounds.cpu_s_per_gb("fio")}, place);
    row["limit_gbps"] = rounds.gbps("limit");
    row["ratio"] = rounds.speed_ratio("fio", "limit").median;
    return row;
  }

  void compare_files(json& rows) {
    FilePerBlock files(directory_ + "/files", layout_.block_bytes(), slot_count_ / 4);
    (void)files.write();  // before the first read
    Rounds rounds;
    rounds.add("write", [&] { return files.write(); });
    rounds.add("read", [&] { return files.read(); });
    rounds.run(std::min(options_.rounds, kPeerRoundsMax));
    for (const char* op : {"read", "write"}) {
      rows.push_back(peer_row(fmt::format("files_{}", op), "a file a block, page cache",
                              {rounds.gbps(op), rounds.cpu_s_per_gb(op)},
                              {layout_.block_bytes(), 1, 1}));
      print_row(rows.back());
    }
  }

  const Options& options_;
  const Layout layout_;
  internal::Tiers tiers_;  // its DRAM outlives its NVMe, whose devices may still write there
  const internal::RecordFormat& format_;
  const std::uint32_t run_blocks_;
  const std::uint32_t depth_max_;
  const std::string directory_;
  std::uint32_t slot_count_ = 0;
  std::optional<OurLoop> ours_;
  Order singles_{0, 1};
  Order runs_{0, 1};
  std::deque<BareLoop> limits_;
};

json run(const Options& options, const std::string& command) {
  json report = {{"benchmark", "nvme_bench"},
                 {"date", utc_now()},
                 {"command", command},
                 {"machine", describe_machine(options.path)},
                 {"file_bytes", options.file_bytes},
                 {"rounds", options.rounds},
                 {"rows", json::array()}};
  fmt::print("{}\n", report["machine"].dump());
  print_head();
  for (const std::uint64_t block_bytes : options.blocks) {
    SizeBench bench(options, block_bytes);
    report["device"] = bench.facts();
    bench.run(report["rows"]);
  }
  fmt::print("{}\n", report["device"].dump());
  return report;
}

std::uint64_t bytes_of(const std::string& text) {
  auto bytes = parse_bytes(text);
  if (!bytes) throw CLI::ValidationError(text, bytes.error().message);
  return *bytes;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--path", options.path, "A directory on the drive to be measured")
      ->required()
      ->check(CLI::ExistingDirectory);
  app.add_option("--json", options.json_file, "Also write the figures to this file");
  app.add_option_function<std::string>(
      "--file-bytes", [&](const std::string& text) { options.file_bytes = bytes_of(text); },
      "Size of the data file (4GiB); larger than any cache on the way is better");
  app.add_option_function<std::vector<std::string>>(
         "--blocks",
         [&](const std::vector<std::string>& texts) {
           options.blocks.clear();
           for (const std::string& text : texts) options.blocks.push_back(bytes_of(text));
         },
         "Sizes of blocks (64KiB,256KiB,1MiB,2MiB)")
      ->delimiter(',');
  app.add_option("--depths", options.depths, "Requests in flight (8,32)")
      ->delimiter(',')
      ->check(CLI::Range(1, 128));
  app.add_option("--rounds", options.rounds, "Measurements of each contestant")
      ->check(CLI::PositiveNumber);
  app.add_flag("!--no-peers", options.peers, "Without fio and files");
  app.add_flag_callback(
      "--quick",
      [&] {
        options.file_bytes = 64 * MiB;
        options.depths = {4};
        options.rounds = 1;
      },
      "Seconds, to see that it runs: the figures say nothing");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"The NVMe tier against the shortest io_uring loop, fio, and a file a block"};
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    const std::vector<std::string> arguments(argv, argv + argc);
    const json report = run(options, fmt::format("{}", fmt::join(arguments, " ")));
    if (!options.json_file.empty() &&
        !(std::ofstream(options.json_file) << report.dump(2) << '\n')) {
      throw std::runtime_error("cannot write " + options.json_file);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "nvme_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
