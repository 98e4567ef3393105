// Opens what a kill left behind, and compares it with what must be there: no wrong byte, nothing
// that was never committed, and of what was resident at least as much as promised.
//
// Runs in a process of its own, so that the one that forks lives never has a thread of RocksDB.
#pragma once

#include <map>
#include <set>

#include "crash/data_file.hpp"

namespace terrace::test {

class Examination {
 public:
  Examination(const Geometry& geometry, const std::string& directory, Journal& journal)
      : geometry_(geometry), directory_(directory), journal_(journal) {
    for (Journal::Copy& copy : journal.known) {
      if (keys_tell_blocks_apart() && copy.standing != Standing::absent) known_[copy.key] = &copy;
    }
  }

  // False where a build cuts keys, to provoke collisions: then a key does not say which block is
  // meant, and only bytes can be examined.
  static bool keys_tell_blocks_apart() { return block_key({}, tokens_from(0, 8)).high != 0; }

  // REQUIRES: nobody else has the directory.
  void go(bool close) {
    const std::uint32_t chains_begun = journal_.chains_begun;
    EXPECT_LE(disk_usage(directory_), geometry_.nvme_bytes);
    const std::size_t records = records_to_scan();
    auto engine = std::make_unique<ToyEngine>(geometry_.options(directory_), geometry_.layout());
    check_recovered(engine->cache().stats(), records);
    for (std::uint32_t number = 0; number < chains_begun; ++number) examine_chain(*engine, number);
    for (Journal::Copy* copy : lost_) copy->standing = Standing::absent;  // counted once
    expect_misses(*engine, chains_begun);
    EXPECT_TRUE(engine->cache().flush(10s));
    engine->check_conservation();
    engine->check_nothing_pinned();
    journal_.findings.corrupt = engine->cache().stats().places[kNvme0].corrupt_blocks;
    if (close) {
      EXPECT_TRUE(engine->cache().close());
    } else {
      (void)engine.release();  // the process ends, and nobody tidies up
    }
    EXPECT_LE(disk_usage(directory_), geometry_.nvme_bytes);
  }

 private:
  // What a scan must find, counted without the library's recovery; 0 where there is an index.
  std::size_t records_to_scan() const {
    if (std::filesystem::exists(directory_ + "/index")) return 0;
    return DataFile(geometry_, directory_).slots().size();
  }

  void check_recovered(const Stats& stats, std::size_t records) const {
    const PlaceStats& nvme = stats.places[kNvme0];
    EXPECT_EQ(nvme.used_blocks, stats.recovered_blocks);
    EXPECT_EQ(nvme.used_blocks + nvme.free_blocks, nvme.capacity_blocks) << "slots have leaked";
    EXPECT_LE(nvme.capacity_bytes, geometry_.nvme_bytes);
    // Counted again, because a request that was in flight at the kill may land after it.
    if (records > 0 && records == DataFile(geometry_, directory_).slots().size()) {
      EXPECT_EQ(stats.recovered_blocks, records);
    }
  }

  void examine_chain(ToyEngine& engine, std::uint32_t number) {
    const Tokens prompt = prompt_of(geometry_, number);
    FetchOp fetch;
    EXPECT_TRUE(engine.model().fetch(engine.model().match(prompt).value(), fetch));
    const std::size_t usable = engine.take_checked(fetch, prompt).slots().size();
    ChainPoint point = engine.model().root()->root;
    bool flushed = true;
    for (std::uint32_t block = 0; block < prompt.size() / geometry_.block_tokens; ++block) {
      point = chain_next(point, engine.tokens_of(prompt, block));
      const auto known = known_.find(point.key);
      if (known == known_.end()) return;  // what comes after it cannot be reached
      flushed = flushed && known->second->standing == Standing::flushed;
      if (counted_.insert(point.key).second) count(*known->second, flushed, block < usable);
    }
  }

  void count(Journal::Copy& copy, bool flushed, bool warm) {
    journal_.findings.add(
        {.resident = 1, .warm = warm, .flushed = flushed, .flushed_warm = flushed && warm});
    if (!warm) lost_.push_back(&copy);
  }

  void expect_misses(ToyEngine& engine, std::uint32_t chains_begun) {
    const std::uint32_t next_family = (chains_begun / kFamily + 1) * kFamily;
    for (std::uint32_t number = next_family; number < next_family + 8; ++number)
      EXPECT_EQ(engine.model().match(prompt_of(geometry_, number))->block_count(), 0U);
    const Scope other{.adapter = {}, .tenant_salt = "other"};
    for (std::uint32_t number = 0; number < chains_begun; ++number)
      EXPECT_EQ(engine.model().match(prompt_of(geometry_, number), other)->block_count(), 0U);
  }

  const Geometry& geometry_;
  const std::string directory_;
  Journal& journal_;
  std::map<BlockKey, Journal::Copy*, KeyOrder> known_;
  std::set<BlockKey, KeyOrder> counted_;
  std::vector<Journal::Copy*> lost_;
};

}  // namespace terrace::test
