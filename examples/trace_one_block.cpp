// Prints the life of one block: each change of its state, in each place, with its cause.
//
// Its output stands in ARCHITECTURE.md, "Life of a block", and a test compares the two.
#include <stdlib.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "terrace/terrace.hpp"

using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t kBlockTokens = 16;

class Story {
 public:
  explicit Story(const std::string& directory) : cache_(open(directory)) {
    const terrace::Digest none = terrace::sha256({});
    model_ = cache_.bind({none, none, none, "none", "none", "none"}).value();
    std::iota(prompt_.begin(), prompt_.end(), 0u);
  }

  // Prints what happened since the last call, under the heading `cause`.
  void tell(const char* cause) {
    std::printf("%s\n", cause);
    std::array<terrace::Event, 16> events;
    for (std::size_t count = 1; count > 0;) {
      count = cache_.read_events(next_, events);
      for (const terrace::Event& event : std::span(events).first(count)) {
        std::printf("  %-5s %-9s -> %s\n", terrace::to_string(event.place),
                    terrace::to_string(event.from), terrace::to_string(event.to));
        next_ = event.sequence + 1;
      }
    }
  }

  // A request: what is cached is fetched, what is not is computed and committed.
  void request() {
    terrace::FetchOp fetch;
    model_.fetch(model_.match(prompt_).value(), fetch).value();
    while (!fetch.done()) cache_.poll(100us);
    cache_.device().synchronize(fetch.layer_point(0));
    while (cache_.poll()) continue;  // the cache hears of it
    terrace::ReadLease prefix = fetch.take_lease();
    if (prefix.prefix().blocks == 1) return;
    terrace::WriteLease fresh = model_.reserve(prefix, 1).value();
    model_.commit(fresh, std::span(prompt_).first(kBlockTokens), {}, prefix).value();
  }

  void flush() { cache_.flush(10s).value(); }
  void drop(std::initializer_list<terrace::PlaceId> places) { cache_.drop(places, 10s).value(); }
  void close() { cache_.close().value(); }

 private:
  static terrace::Cache open(const std::string& directory) {
    terrace::Options options;
    options.hbm_bytes = options.dram_bytes = 4 * terrace::MiB;
    options.nvme_paths = {directory};
    options.nvme_bytes = 128 * terrace::MiB;
    const auto layout = terrace::Layout::full(2, 2, 64, terrace::KvDtype::bf16, kBlockTokens);
    return terrace::Cache::open(std::move(options), layout).value();
  }

  terrace::Cache cache_;
  terrace::Model model_;
  std::vector<terrace::TokenId> prompt_ = std::vector<terrace::TokenId>(kBlockTokens + 1);
  std::uint64_t next_ = 0;  // sequence number of the next event to print
};

}  // namespace

int main() {
  std::string directory = (std::filesystem::temp_directory_path() / "terrace-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return std::perror(directory.c_str()), 1;
  {
    Story story(directory);
    story.request();
    story.tell("Computed and committed by a first request");
    story.flush();
    story.tell("Written through to the places below, while the engine goes on");
    story.drop({terrace::kHbm0});
    story.tell("HBM is needed for other blocks");
    story.request();
    story.tell("A second request: from DRAM");
    story.drop({terrace::kHbm0, terrace::kDram0});
    story.tell("DRAM is needed, too");
    story.request();
    story.tell("A third request: from NVMe, through DRAM, verified on the way");
    story.close();
  }
  {
    Story story(directory);
    story.tell("The process ends, and another opens the directory");
    story.request();
    story.tell("A fourth request");
    story.close();
  }
  std::filesystem::remove_all(directory);
}
