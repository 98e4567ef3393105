#include "sim/sim_index.hpp"

#include <cstring>
#include <iterator>

namespace terrace::sim {

using Kind = IndexUpdate::Kind;

// ---- What survives.

void IndexImage::State::apply(const IndexUpdate& update) {
  switch (update.kind) {
    case Kind::put:
      entries[update.slot] = update.header;
      return;
    case Kind::erase:
      entries.erase(update.slot);
      return;
    case Kind::complete:
      complete = true;
      return;
    case Kind::sync:
      return;
  }
}

void IndexImage::apply(const IndexUpdate& update) {
  const auto before = now_.entries.find(update.slot);
  if (before != now_.entries.end()) replaced_[update.slot] = before->second;
  now_.apply(update);
  unflushed_.push_back(update);
}

void IndexImage::flush() {
  durable_ = now_;
  unflushed_.clear();
}

void IndexImage::clear() {
  *this = IndexImage();
}

void IndexImage::lose_power(Random& random) {
  const std::size_t kept = random.next() % (unflushed_.size() + 1);
  for (std::size_t i = 0; i < kept; ++i) durable_.apply(unflushed_[i]);
  now_ = durable_;
  unflushed_.clear();
}

void IndexImage::make_stale(Random& random) {
  const auto old =
      std::next(replaced_.begin(), random.below(static_cast<std::uint32_t>(replaced_.size())));
  apply({Kind::put, old->first, old->second});
  flush();
}

void IndexImage::swap_two(Random& random) {
  std::swap(any_entry(random), any_entry(random));
  flush();
}

void IndexImage::damage(Random& random) {
  std::vector<std::byte>& header = any_entry(random);
  header[random.below(static_cast<std::uint32_t>(header.size()))] ^=
      static_cast<std::byte>(1U << random.below(8));
  flush();
}

std::vector<std::byte>& IndexImage::any_entry(Random& random) {
  const auto count = static_cast<std::uint32_t>(now_.entries.size());
  return std::next(now_.entries.begin(), random.below(count))->second;
}

// ---- The index of a living process.

SimIndex::SimIndex(World& world, IndexFolder& folder)
    : world_(world), folder_(folder), image_(folder.image) {
  folder_.user = this;
  folder_.durable_until = Clock::Time{0};
}

SimIndex::~SimIndex() {
  drain(Clock::Time::max());
  if (folder_.user == this) folder_.user = nullptr;
}

void SimIndex::work() {
  drain(world_.now());
}

Result<void> SimIndex::load(const Visitor& visit) {
  drain(Clock::Time::max());
  const IndexImage::Entries& entries = image_->entries();
  world_.note("an index is loaded: " + std::to_string(entries.size()) + " entries");
  const bool corrupt = world_.strikes(Fault::index_corrupt);
  std::size_t readable = corrupt ? world_.luck().next() % (entries.size() + 1) : entries.size();
  std::vector<std::uint64_t> aligned;
  for (auto entry = entries.begin(); readable > 0; ++entry, --readable) {
    const auto& [slot, header] = *entry;
    aligned.resize((header.size() + 7) / 8);
    std::memcpy(aligned.data(), header.data(), header.size());
    visit(slot, std::as_bytes(std::span(aligned)).first(header.size()));
  }
  if (!corrupt) return {};
  image_->clear();
  return fail(Code::corrupt, "the simulated index was damaged, and is empty now");
}

bool SimIndex::put(std::uint32_t slot, std::span<const std::byte> header) {
  return push({Kind::put, slot, {header.begin(), header.end()}});
}

bool SimIndex::erase(std::uint32_t slot) {
  return push({Kind::erase, slot});
}

bool SimIndex::push(IndexUpdate update) {
  world_.step();
  work();
  if (full_for_ == 0 && world_.strikes(Fault::index_full)) full_for_ = 1 + world_.luck().below(20);
  if (full_for_ > 0) {
    --full_for_;
    return false;
  }
  enqueue(std::move(update));
  return true;
}

// In the queue behind all that it is to make durable.
void SimIndex::sync_soon() {
  if (!given_up_) enqueue({Kind::sync, 0, {}});
}

void SimIndex::enqueue(IndexUpdate update) {
  const auto takes = Clock::Time(static_cast<Clock::Time::rep>(world_.luck().skewed(1'000, 12)));
  queue_.push_back({world_.now(), world_.now() + takes, std::move(update)});
}

void SimIndex::drain(Clock::Time until) {
  for (; !queue_.empty() && queue_.front().due <= until; queue_.pop_front()) write(queue_.front());
}

void SimIndex::write(const Queued& queued) {
  if (queued.update.kind == Kind::sync) {
    if (given_up_) return;
    image_->flush();
    folder_.durable_until = queued.pushed;
    world_.note("an index is synced");
  } else if (given_up_ || world_.strikes(Fault::index_update_lost)) {
    ++failures_;
    give_up();
  } else {
    if (image_->all_durable()) folder_.durable_until = queued.pushed;  // the first that is not
    image_->apply(queued.update);
  }
}

// Without one of its updates it is not what it says it is: the next start scans.
void SimIndex::give_up() {
  given_up_ = true;
  image_->clear();
  folder_.durable_until = Clock::Time::max();
}

Result<void> SimIndex::mark_complete() {
  if (auto flushed = flush(); !flushed) return flushed;
  image_->apply({Kind::complete});
  return flush();
}

Result<void> SimIndex::flush() {
  world_.step();
  drain(Clock::Time::max());
  if (!given_up_ && (world_.crashed() || world_.strikes(Fault::index_flush_error))) give_up();
  if (given_up_) return fail(Code::io_error, "the simulated index could not be written");
  image_->flush();
  folder_.durable_until = world_.now();
  return {};
}

}  // namespace terrace::sim
