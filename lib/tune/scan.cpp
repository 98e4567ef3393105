#include "tune/scan.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>

#include "terrace/units.hpp"

namespace terrace::tune {
namespace {

using internal::NvmeReader;
using internal::Verdict;

// As many requests in flight as a drive wants, and no more memory than a tool may take.
constexpr std::uint64_t kThreadsMax = 8;
constexpr std::uint64_t kBuffersMax = 256 * MiB;

Record record_of(const NvmeReader::Slot& slot) {
  Record record;
  record.slot = slot.slot;
  record.os_error = slot.os_error;
  record.verdict = slot.verdict;
  record.root = slot.meta.root;
  record.self = slot.meta.self;
  record.parent = slot.meta.parent.lineage;
  record.depth = slot.meta.depth;
  record.tokens = static_cast<std::uint32_t>(slot.meta.tokens.size());
  record.sequence = slot.meta.sequence;
  return record;
}

class Scan {
 public:
  Scan(const NvmeReader& reader, bool payloads)
      : reader_(reader), payloads_(payloads), slot_count_(reader.manifest()->slot_count) {}

  Findings run(const Progress& progress) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::future<Findings>> lanes;
    const auto threads =
        std::clamp<std::uint64_t>(kBuffersMax / reader_.buffer_bytes(), 1, kThreadsMax);
    while (lanes.size() < threads) {
      lanes.push_back(std::async(std::launch::async, [this] { return lane(); }));
    }
    Findings all;
    for (std::future<Findings>& lane : lanes) {
      while (lane.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
        if (progress) progress(done_.load(), slot_count_);
      }
      add(lane.get(), all);
    }
    std::ranges::sort(all.records, {}, &Record::slot);
    all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return all;
  }

 private:
  Findings lane() {
    const auto buffer = reader_.make_buffer();
    if (!buffer) throw std::runtime_error(buffer.error().message);
    const std::uint64_t payload_bytes = reader_.manifest()->format.payload_bytes();
    const std::uint64_t step = reader_.slots_per_read();
    Findings found;
    const auto note = [&](const NvmeReader::Slot& slot) {
      const bool empty = slot.os_error == 0 && slot.verdict == Verdict::not_a_record;
      if (empty) ++found.empty_slots;
      if (!empty) found.records.push_back(record_of(slot));
      const bool hashed = slot.verdict == Verdict::good || slot.verdict == Verdict::payload_damaged;
      if (payloads_ && hashed) found.verified_bytes += payload_bytes;
    };
    // 64 bits: the last step may lead past the largest slot number.
    for (std::uint64_t first; (first = next_.fetch_add(step)) < slot_count_;) {
      const auto count = static_cast<std::uint32_t>(std::min(step, slot_count_ - first));
      reader_.read(static_cast<std::uint32_t>(first), count, payloads_, *buffer, note);
      done_ += count;
    }
    return found;
  }

  static void add(Findings&& some, Findings& all) {
    all.records.insert(all.records.end(), some.records.begin(), some.records.end());
    all.empty_slots += some.empty_slots;
    all.verified_bytes += some.verified_bytes;
  }

  const NvmeReader& reader_;
  const bool payloads_;
  const std::uint64_t slot_count_;
  std::atomic<std::uint64_t> next_ = 0;
  std::atomic<std::uint64_t> done_ = 0;
};

}  // namespace

Findings scan(const NvmeReader& reader, bool payloads, const Progress& progress) {
  return Scan(reader, payloads).run(progress);
}

}  // namespace terrace::tune
