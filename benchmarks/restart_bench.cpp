// How fast a cache is back: open with many blocks on NVMe, by index and by scan, and after kill -9
// under full write load; and what a block costs in memory.
//
//   restart_bench --path DIR [--blocks N] [--repeats N] [--json FILE]
//
// Each open is a process of its own. The records have true headers; their payload is nobody's, since
// an open reads none. The limit of the scan is the same reads, by the same device, unparsed.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "io/host_memory.hpp"
#include "measure.hpp"
#include "terrace/cache.hpp"
#include "tier/nvme_store.hpp"

namespace {

using namespace terrace;
using namespace std::chrono_literals;
using bench::median;
using internal::RecordFormat;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kChainBlocks = 64;
constexpr std::uint32_t kDepth = 128;

struct BenchOptions {
  std::string path;
  std::uint32_t blocks = 1'000'000;
  std::uint32_t repeats = 5;
  std::string json;
};

// 8 KiB a block: small ones, so that many fit a disk.
Layout bench_layout() {
  return Layout::full(4, 1, 16, KvDtype::f32, 16);
}

ModelIdentity bench_identity() {
  const auto digest = [](const char* text) {
    return sha256(std::as_bytes(std::span(text, std::strlen(text))));
  };
  ModelIdentity identity;
  identity.weights = digest("weights");
  identity.tokenizer = digest("tokenizer");
  identity.attention = digest("attention");
  identity.quantization = "none";
  identity.kv_scaling = "none";
  return identity;
}

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

// The cap that gives room for `blocks` and their index.
std::uint64_t cap_for(std::uint32_t blocks, const RecordFormat& format) {
  std::uint64_t bytes = blocks * format.record_bytes();
  while (internal::size_nvme(bytes, format).slot_count < blocks) bytes += bytes / 64;
  return bytes;
}

Options cache_options(const BenchOptions& bench, const RecordFormat& format) {
  Options options;
  options.hbm_bytes = 512 * format.payload_bytes();
  options.dram_bytes = 512 * format.record_bytes();
  options.nvme_paths = {bench.path};
  options.nvme_bytes = cap_for(bench.blocks, format);
  options.prefault = false;
  return options;
}

// ---- Filling.

// Tokens of block `index` of chain `chain`: no two chains share a block.
void make_tokens(std::uint32_t chain, std::uint32_t index, std::vector<TokenId>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<TokenId>(chain * 7919 + index * 31 + i);
}

// Writes every record, and its entry in the index.
void fill(const BenchOptions& bench, const RecordFormat& format) {
  const Layout layout = bench_layout();
  internal::NvmeStoreOptions how;
  how.path = bench.path;
  how.bytes_max = cap_for(bench.blocks, format);
  how.queue_depth_max = kDepth;
  auto store = internal::NvmeStore::open(how, layout, format).value();
  const auto root = chain_root(bench_identity(), layout).value();
  auto memory = internal::HostMemory::allocate(kDepth * format.record_bytes(), {}).value();
  std::vector<std::uint32_t> idle;
  for (std::uint32_t lane = 0; lane < kDepth; ++lane) idle.push_back(lane);
  std::vector<IoResult> results(kDepth);
  const auto reap = [&] {
    const std::size_t count = store->device().reap(results);
    for (std::size_t i = 0; i < count; ++i)
      idle.push_back(static_cast<std::uint32_t>(results[i].user_data));
  };
  std::vector<TokenId> tokens(layout.block_tokens);
  ChainPoint tip = root;
  for (std::uint32_t slot = 0; slot < bench.blocks; ++slot) {
    if (slot % kChainBlocks == 0) tip = root;
    make_tokens(slot / kChainBlocks, slot % kChainBlocks, tokens);
    internal::RecordMeta meta;
    meta.root = root.lineage;
    meta.parent = tip;
    meta.self = tip = chain_next(tip, tokens);
    meta.depth = slot % kChainBlocks;
    meta.tokens = tokens;
    meta.sequence = slot + 1;
    while (idle.empty()) reap();
    const std::uint32_t lane = idle.back();
    idle.pop_back();
    const auto record = memory.bytes().subspan(lane * format.record_bytes(), format.record_bytes());
    format.seal(record, meta);
    const IoRequest write{IoRequest::Kind::write, store->slot_offset(slot), record.data(),
                          static_cast<std::uint32_t>(record.size()), lane};
    while (store->device().submit({&write, 1}) == 0) reap();
    while (!store->index().put(slot, record.first(format.entry_bytes()))) usleep(100);
    if (slot % 100'000 == 0) std::cerr << "\rfilling: " << slot << " blocks" << std::flush;
  }
  while (store->device().in_flight() > 0) reap();
  if (!store->close()) throw std::runtime_error("the directory cannot be made durable");
  std::cerr << "\r";
}

// ---- Steps in processes of their own.

// Returns: what `step` wrote to its end of the pipe; the process has ended, or was killed
// `kill_after` its first word.
template <class Step>
std::string in_process(const Step& step, std::chrono::milliseconds kill_after = {}) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    try {
      step(ends[1]);
    } catch (const std::exception& error) {
      std::cerr << "restart_bench: " << error.what() << "\n";
      ::_exit(1);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  SteadyClock::time_point first{};
  for (ssize_t count = 0; (count = ::read(ends[0], bytes, sizeof bytes)) > 0;) {
    if (text.empty()) first = SteadyClock::now();
    text.append(bytes, static_cast<std::size_t>(count));
    if (kill_after.count() > 0 && SteadyClock::now() - first > kill_after) ::kill(child, SIGKILL);
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (kill_after.count() == 0 && status != 0) throw std::runtime_error("a step failed");
  return text;
}

void say(int fd, const nlohmann::json& value) {
  const std::string line = value.dump() + "\n";
  if (::write(fd, line.data(), line.size()) < 0) ::_exit(1);
}

nlohmann::json open_once(const BenchOptions& bench, const RecordFormat& format) {
  const std::string text = in_process([&](int fd) {
    const std::uint64_t before = resident_bytes();
    const auto begin = SteadyClock::now();
    auto cache = Cache::open(cache_options(bench, format), bench_layout());
    if (!cache) throw std::runtime_error(cache.error().message);
    const double seconds = seconds_since(begin);
    const Stats stats = cache->stats();
    say(fd, {{"seconds", seconds},
             {"blocks", stats.recovered_blocks},
             {"index", stats.nvme_index},
             {"rss_bytes", resident_bytes() - before - stats.places[kDram0].capacity_bytes}});
  });
  return nlohmann::json::parse(text);
}

nlohmann::json opens(const BenchOptions& bench, const RecordFormat& format, std::uint32_t repeats) {
  std::vector<double> seconds;
  nlohmann::json last;
  for (std::uint32_t i = 0; i < repeats; ++i) {
    last = open_once(bench, format);
    seconds.push_back(last["seconds"].get<double>());
  }
  last["seconds"] = median(seconds);
  last["rss_bytes_per_block"] = last["rss_bytes"].get<double>() / last["blocks"].get<double>();
  return last;
}

// Commits new chains as fast as the tiers take them, and tells how many blocks are on NVMe.
void write_on(const BenchOptions& bench, const RecordFormat& format, int fd) {
  auto cache = Cache::open(cache_options(bench, format), bench_layout());
  if (!cache) throw std::runtime_error(cache.error().message);
  Model model = cache->bind(bench_identity()).value();
  const std::uint32_t block_tokens = cache->layout().block_tokens;
  std::vector<TokenId> prompt(kChainBlocks * block_tokens);
  for (std::uint32_t chain = 1'000'000;; ++chain) {
    for (std::size_t i = 0; i < prompt.size(); ++i)
      prompt[i] = static_cast<TokenId>(chain * 7919 + i);
    FetchOp fetch;
    if (!model.fetch(model.match(prompt).value(), fetch)) throw std::runtime_error("no fetch");
    while (!fetch.done()) cache->poll();
    ReadLease prefix = fetch.take_lease();
    auto lease = model.reserve(prefix, kChainBlocks);
    if (lease) (void)model.commit(*lease, prompt, StreamPoint{}, prefix);
    prefix.release();
    while (cache->stats().spill_backlog_blocks > 256) cache->poll(100us);
    const Stats stats = cache->stats();
    say(fd, {{"stored", stats.places[kNvme0].stored_blocks - stats.recovered_blocks},
             {"resident", stats.places[kNvme0].used_blocks}});
  }
}

nlohmann::json kill_under_load(const BenchOptions& bench, const RecordFormat& format) {
  const std::string text =
      in_process([&](int fd) { write_on(bench, format, fd); }, std::chrono::milliseconds(5000));
  const std::size_t end = text.rfind('\n');
  if (end == std::string::npos || end == 0) return {};
  const std::size_t begin = text.rfind('\n', end - 1) + 1;
  nlohmann::json killed = nlohmann::json::parse(text.substr(begin, end - begin));
  const nlohmann::json opened = open_once(bench, format);
  killed["seconds"] = opened["seconds"];
  killed["recovered"] = opened["blocks"];
  killed["warm_share"] = opened["blocks"].get<double>() / killed["resident"].get<double>();
  return killed;
}

// The scan's reads, unparsed: as large, as many at once, through the same kind of device.
double raw_scan_seconds(const BenchOptions& bench, const RecordFormat& format) {
  const bool whole = format.record_bytes() <= 32 * KiB;  // as NvmeScan
  const std::uint32_t per_read =
      whole ? static_cast<std::uint32_t>(256 * KiB / format.record_bytes()) : 1;
  const std::uint64_t bytes =
      whole ? per_read * format.record_bytes() : std::uint64_t{format.header_bytes()};
  BlockDeviceOptions how;
  how.path = bench.path + "/blocks.dat";
  how.size_bytes = std::filesystem::file_size(how.path);
  how.queue_depth_max = 32;
  auto memory = internal::HostMemory::allocate(32 * bytes, {}).value();
  how.buffers = memory.bytes();
  auto device = open_block_device(how).value();
  std::vector<IoResult> results(32);
  std::vector<std::uint32_t> idle;
  for (std::uint32_t lane = 0; lane < 32; ++lane) idle.push_back(lane);
  const auto begin = SteadyClock::now();
  std::uint64_t next = 0;
  const std::uint64_t slots = how.size_bytes / format.record_bytes();
  while (next < slots || device->in_flight() > 0) {
    while (!idle.empty() && next < slots) {
      const std::uint64_t offset = next * format.record_bytes();
      const std::uint64_t size = std::min(bytes, how.size_bytes - offset);
      const IoRequest read{IoRequest::Kind::read, offset,
                           memory.bytes().data() + idle.back() * bytes,
                           static_cast<std::uint32_t>(size), idle.back()};
      if (device->submit({&read, 1}) == 0) break;
      idle.pop_back();
      next += per_read;
    }
    const std::size_t count = device->reap(results);
    for (std::size_t i = 0; i < count; ++i)
      idle.push_back(static_cast<std::uint32_t>(results[i].user_data));
  }
  return seconds_since(begin);
}

nlohmann::json scan(const BenchOptions& bench, const RecordFormat& format) {
  std::vector<double> ratios;
  nlohmann::json last;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const double raw = raw_scan_seconds(bench, format);
    std::filesystem::remove_all(bench.path + "/index");
    last = open_once(bench, format);
    last["raw_seconds"] = raw;
    ratios.push_back(raw / last["seconds"].get<double>());
  }
  last["ratio"] = median(ratios);
  return last;
}

void print(const nlohmann::json& all) {
  const auto& clean = all["clean"];
  fmt::print("open by index            {:8.3f} s   {} blocks, {:.0f} bytes of RSS a block\n",
             clean["seconds"].get<double>(), clean["blocks"].get<std::uint64_t>(),
             clean["rss_bytes_per_block"].get<double>());
  const auto& killed = all["killed"];
  fmt::print("after kill -9 under load {:8.3f} s   {} blocks written before, {:.2f} % warm\n",
             killed["seconds"].get<double>(), killed["stored"].get<std::uint64_t>(),
             100 * killed["warm_share"].get<double>());
  const auto& scanned = all["scan"];
  fmt::print("open by scan             {:8.3f} s   {:.2f} of the rate of the same reads unparsed\n",
             scanned["seconds"].get<double>(), scanned["ratio"].get<double>());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("How fast a cache with many blocks on NVMe is back");
  BenchOptions bench;
  app.add_option("--path", bench.path, "Directory to make and remove again")->required();
  app.add_option("--blocks", bench.blocks, "Blocks in it; each takes 12 KiB")
      ->check(CLI::Range(1000, 100'000'000));
  app.add_option("--repeats", bench.repeats, "Opens, of which the median counts")
      ->check(CLI::Range(1, 100));
  app.add_option("--json", bench.json, "Also write the results there");
  CLI11_PARSE(app, argc, argv);
  if (std::filesystem::exists(bench.path)) {
    std::cerr << "restart_bench: " << bench.path << " exists: name a directory that does not\n";
    return 2;
  }
  try {
    const RecordFormat format(bench_layout(), 4096);
    (void)in_process([&](int) { fill(bench, format); });
    nlohmann::json all{{"blocks", bench.blocks}};
    all["clean"] = opens(bench, format, bench.repeats);
    all["killed"] = kill_under_load(bench, format);
    all["scan"] = scan(bench, format);
    std::filesystem::remove_all(bench.path);
    print(all);
    if (!bench.json.empty()) std::ofstream(bench.json) << all.dump(2) << "\n";
  } catch (const std::exception& error) {
    std::cerr << "restart_bench: " << error.what() << "\n";
    return 1;
  }
}
