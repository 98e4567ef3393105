// A life: a process that opens a cache on a directory, loads it with prompts, and closes it, if it
// gets that far.
#pragma once

#include <unistd.h>

#include <random>
#include <string>

#include "crash/journal.hpp"

namespace terrace::test {

// A kind of directory.
struct Geometry {
  const char* name;
  std::uint32_t block_tokens;
  std::uint64_t nvme_bytes;
  bool io_uring;
  bool direct;
  bool indexed;  // where RocksDB is built in

  Layout layout() const { return toy_layout(block_tokens); }
  Options options(const std::string& directory) const {
    Options options = toy_options(24, 20, directory, nvme_bytes, layout());
    options.io_uring = io_uring;
    options.direct_io = direct;
    return options;
  }
};

// Full soon, so that every write replaces a record; recovered by a scan.
inline constexpr Geometry kScan{"Scan", 8, 1 * MiB, true, true, false};
// The same in records of 28 KiB, which a kill can tear: the kernel copies them page by page.
inline constexpr Geometry kPageCache{"PageCache", 64, 3 * MiB, false, false, false};
// Large enough for RocksDB to be worth it; recovered through the index.
inline constexpr Geometry kIndex{"Index", 64, 128 * MiB, true, true, true};

inline void PrintTo(const Geometry& geometry, std::ostream* out) {
  *out << geometry.name;
}

// Chain `number` has 3 to 6 blocks; it shares the first two with its family, the chains of an equal
// number / 4.
inline constexpr std::uint32_t kFamily = 4;

inline Tokens prompt_of(const Geometry& geometry, std::uint32_t number) {
  const std::uint32_t own_blocks = 1 + number % kFamily;
  Tokens prompt = tokens_from(number / kFamily * 10'000, 2 * geometry.block_tokens);
  // One token more, so that all whole blocks can be hit.
  const Tokens own =
      tokens_from(1'000'000'000 + number * 10'000, own_blocks * geometry.block_tokens + 1);
  prompt.insert(prompt.end(), own.begin(), own.end());
  return prompt;
}

class Life {
 public:
  Life(const Geometry& geometry, const std::string& directory, std::uint64_t seed, Journal& journal)
      : geometry_(geometry),
        journal_(journal),
        random_(seed),
        engine_(options(directory), geometry.layout()) {
    witness_->read_events(engine_.cache());
    journal_.phase = Phase::serving;
  }

  // The first `count` chains, nothing else.
  void serve_chains(std::uint32_t count) {
    for (std::uint32_t number = 0; number < count; ++number) serve(number);
  }

  void load(std::uint32_t prompts) {
    for (std::uint32_t i = 0; i < prompts; ++i) {
      step();
      for (std::uint32_t polls = pick(8); polls > 0; --polls) engine_.cache().poll();
      witness_->read_events(engine_.cache());
    }
  }

  void flush() {
    if (!engine_.cache().flush(10s)) return;
    witness_->read_events(engine_.cache());
    witness_->flushed();
    ++journal_.flushes;
  }

  // For the kill.
  void wait() {
    journal_.phase = Phase::waiting;
    for (;;) ::pause();
  }

  void close() {
    const auto closed = engine_.cache().close();
    EXPECT_TRUE(closed) << closed.error().message;
    journal_.phase = Phase::closed;
  }

 private:
  Options options(const std::string& directory) {
    journal_.phase = Phase::opening;
    Options options = geometry_.options(directory);
    options.eviction = [this](std::uint32_t capacity) {
      auto witness = std::make_unique<Witness>(capacity, journal_);
      witness_ = witness.get();
      return witness;
    };
    return options;
  }

  std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  void step() {
    switch (pick(50)) {
      case 0:
        engine_.drop({kHbm0, kDram0, kNvme0});
        break;
      case 1:
      case 2:
        engine_.drop({kHbm0, kDram0});
        break;
      case 3:
      case 4:
      case 5:
        flush();
        break;
      case 6:
      case 7:
      case 8:
      case 9:
        serve(pick(journal_.chains_begun + 1));
        break;
      default:
        serve(journal_.chains_begun);
        break;
    }
  }

  void serve(std::uint32_t number) {
    if (number == journal_.chains_begun) ++journal_.chains_begun;
    engine_.prefill(prompt_of(geometry_, number)).release();
  }

  const Geometry& geometry_;
  Journal& journal_;
  std::mt19937_64 random_;
  Witness* witness_ = nullptr;  // the cache owns it
  ToyEngine engine_;
};

}  // namespace terrace::test
