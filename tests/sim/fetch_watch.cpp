#include <algorithm>

#include "sim/task.hpp"

namespace terrace::sim {
namespace {

// Once it need not wait any longer, only a device that refuses can hold a fetch up: every fourth try
// may succeed, and there is one for each group of layers.
constexpr std::uint32_t kOverduePollsMax = 100;
// Half a minute for each of the reads that wait for each other in a queue.
constexpr auto kDriveAnswersWithin = std::chrono::seconds(100);

}  // namespace

Match FetchWatch::match(std::span<const TokenId> prompt) {
  life_.mirror().read(life_.cache());
  found_at_.clear();
  failures_.clear();
  auto match = life_.model(chain_).match(prompt, chain_.scope);
  if (!match) {
    life_.world().check(life_.closed() && match.error().code == Code::closed, "match() failed");
    return {};
  }
  check_runs(*match);
  return std::move(*match);
}

// I14: the longest contiguous prefix, at most prompt - 1 tokens, exact counts, and every block in
// the place that it is best taken from.
void FetchWatch::check_runs(const Match& match) {
  World& world = life_.world();
  const std::uint32_t block_tokens = life_.universe().block_tokens();
  const std::uint32_t matchable = (prompt_tokens_ - 1) / block_tokens;
  const std::uint32_t count = match.block_count();
  world.check(count <= matchable, "I14: more matched than prompt - 1 tokens");
  world.check(match.token_count() == count * block_tokens, "I14: tokens and blocks of a match");
  world.check(match.prompt_tokens() == prompt_tokens_, "I14: a match of another prompt");
  for (const MatchRun& run : match.runs()) {
    world.check(run.first_block == found_at_.size(), "I14: the runs of a match have a hole");
    for (std::uint32_t i = 0; i < run.block_count && found_at_.size() < count; ++i) {
      check_place(chain_.blocks[found_at_.size()], run.place, run.availability);
      failures_.push_back(life_.mirror().failures(chain_.blocks[found_at_.size()]));
      found_at_.push_back(run.place);
    }
  }
  note("match");
  world.check(found_at_.size() == count, "I14: the runs of a match are not its blocks");
  const ChainPoint& tip =
      count == 0 ? chain_.root : life_.universe().block(chain_.blocks[count - 1]).point;
  world.check(match.prefix().tip == tip, "I2: a match of another chain");
  if (count == matchable || !life_.mirror().knows()) return;
  const BlockNumber next = chain_.blocks[count];
  const auto usable = [&](PlaceId place) {
    const BlockState state = life_.mirror().state(next, place);
    return state == BlockState::resident || (place != kNvme0 && state == BlockState::landing);
  };
  world.check(!usable(kHbm0) && !usable(kDram0) && !usable(kNvme0),
              "I14: a block is there, and was not found");
}

void FetchWatch::check_place(BlockNumber block, PlaceId place, Availability availability) {
  World& world = life_.world();
  world.check(life_.universe().block(block).committed, "I10: found what nobody has committed");
  if (!life_.mirror().knows()) return;
  const BlockState state = life_.mirror().state(block, place);
  const bool in_flight = availability == Availability::in_flight;
  world.check(state == (in_flight ? BlockState::landing : BlockState::resident),
              "I10: found where the events do not know it");
  world.check(in_flight || availability ==
                               (place == kHbm0 ? Availability::resident : Availability::fetchable),
              "a wrong availability");
  for (PlaceId better = 0; better < place; ++better) {
    const BlockState above = life_.mirror().state(block, better);
    world.check(above != BlockState::resident && above != BlockState::landing,
                "found in a worse place than there is");
  }
}

OperationOptions FetchWatch::options() {
  Random& luck = life_.world().luck();
  OperationOptions options{.user_data = luck.next()};
  if (luck.one_in(3))
    options.deadline = Clock::Time(static_cast<Clock::Time::rep>(luck.skewed(1'000, 24)));
  user_data_ = options.user_data;
  deadline_ =
      options.deadline.count() == 0 ? Clock::Time{0} : life_.world().now() + options.deadline;
  into_arena_ = true;
  room_ = life_.room(kHbm0);
  meets_failed_copy_ = false;
  for (std::size_t i = 0; i < found_at_.size(); ++i) {
    for (const PlaceId place : {kHbm0, kDram0})
      meets_failed_copy_ |=
          life_.mirror().state(chain_.blocks[i], place) == BlockState::quarantined;
  }
  needed_ = static_cast<std::uint32_t>(
      std::ranges::count_if(found_at_, [](PlaceId place) { return place != kHbm0; }));
  return options;
}

void FetchWatch::started(bool into_arena) {
  into_arena_ = into_arena;
  is_cancelled_ = false;
  overdue_polls_ = 0;
  started_ = life_.world().now();
  life_.started_fetch(prompt_tokens_);
  note(into_arena_ ? "fetch into the arena" : "fetch into the pool");
}

void FetchWatch::look(const FetchOp& op) {
  if (op.done()) return;
  const bool overdue =
      is_cancelled_ || (deadline_.count() != 0 && life_.world().now() >= deadline_);
  if (overdue) ++overdue_polls_;
  life_.world().check(overdue_polls_ <= kOverduePollsMax,
                      "I18: a fetch goes on after its deadline, or its cancellation");
  life_.world().check(life_.world().now() - started_ <= kDriveAnswersWithin,
                      "I18: a fetch waits for a drive that does not answer");
}

void FetchWatch::ended(const FetchOp& op) {
  World& world = life_.world();
  const std::uint32_t usable = op.blocks_usable();
  life_.mirror().read(life_.cache());
  note("fetched " + std::to_string(usable) + " of");
  world.check(op.user_data() == user_data_, "I13: the end of another operation");
  world.check(op.results().size() == found_at_.size(), "a fetch without a result for each block");
  world.check(usable <= found_at_.size(), "more usable than matched");
  for (std::size_t i = 0; i < found_at_.size(); ++i) {
    const BlockResult& result = op.results()[i];
    world.check(result.usable == (i < usable), "I12: the usable blocks are no prefix");
    world.check(result.found_at == found_at_[i], "I26: a hit in another place than it was found");
    if (!result.usable && !explains(result.reason, usable))
      world.report(std::string("I12: a fetch was cut short for no reason: ") +
                   to_string(result.reason));
  }
  life_.ended_fetch(op);
  if (usable < found_at_.size()) ++life_.coverage().cut_short;
}

void FetchWatch::note(std::string text) const {
  if (!life_.world().config().trace) return;
  for (std::size_t i = 0; i < found_at_.size(); ++i)
    text += " " + std::to_string(chain_.blocks[i]) + "@" + terrace::to_string(found_at_[i]);
  life_.world().note(text);
}

// Whether a fetch may have ended early for this reason.
bool FetchWatch::explains(Code reason, std::size_t first_missing) const {
  switch (reason) {
    case Code::cancelled:
      return is_cancelled_ || life_.closed() || life_.world().crashed();
    case Code::deadline_exceeded:
      return deadline_.count() != 0 && life_.world().now() >= deadline_;
    case Code::no_space:
      return into_arena_ && (room_ < needed_ || !life_.mirror().knows());
    case Code::io_error:
      // Or the block was on its way for another request, which gave it up, now or before.
      return life_.may_fail() || !life_.mirror().knows() || meets_failed_copy_ ||
             life_.mirror().failures(chain_.blocks[first_missing]) > failures_[first_missing];
    default:
      return false;
  }
}

}  // namespace terrace::sim
