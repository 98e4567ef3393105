#include "sim/sim_disk.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/block_file.hpp"

namespace terrace::sim {
namespace {

using namespace std::chrono_literals;
using Kind = IoRequest::Kind;
using Outcome = internal::RequestTable::Outcome;

constexpr int kStallsMax = 6;
constexpr Clock::Time kRefusesMax = 2s;

// `visit(data, offset)` for each sector of a request, `offset` counted from its start.
template <class Pieces, class Visit>
void for_each_sector(const Pieces& pieces, const Visit& visit) {
  std::uint64_t offset = 0;
  for (const IoPiece& piece : pieces) {
    for (std::uint32_t at = 0; at < piece.bytes; at += kSectorBytes, offset += kSectorBytes)
      visit(piece.data + at, offset);
  }
}

std::uint64_t seal_of(const std::vector<IoPiece>& pieces) {
  std::uint64_t seal = 0;
  for_each_sector(pieces, [&seal](const std::byte* data, std::uint64_t) {
    for (std::uint32_t at = 0; at < kSectorBytes; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, data + at, sizeof word);
      seal = (seal ^ word) * 0x9e3779b97f4a7c15;
      seal ^= seal >> 32;
    }
  });
  return seal;
}

bool meet(const IoPiece& a, const IoPiece& b) {
  return a.data < b.data + b.bytes && b.data < a.data + a.bytes;
}

}  // namespace

SimDisk::SimDisk(World& world, Drive& drive, const BlockDeviceOptions& options)
    : world_(world),
      drive_(drive),
      media_(drive.media),
      size_bytes_(media_->size_bytes()),
      requests_(options.queue_depth_max),
      buffers_(options.buffers) {
  drive_.user = this;
  drive_.durable_until = Clock::Time{0};
}

// Whatever is in flight may still move its bytes now, and never afterwards.
SimDisk::~SimDisk() {
  for (Flight& flight : flights_) {
    if (world_.luck().one_in(2)) land(flight);
  }
  if (drive_.user == this) drive_.user = nullptr;
}

// ---- Submitting.

std::size_t SimDisk::submit(std::span<const IoRequest> requests) {
  std::size_t taken = 0;
  for (const IoRequest& request : requests) {
    if (requests_.full() || refuses()) break;
    world_.step();
    const int error = internal::check_request(request, size_bytes_);
    flights_.push_back(launch(requests_.add(request, error)));
    if (!request.more.empty()) ++drive_.runs;
    world_.clock()->stir();
    ++taken;
  }
  return taken;
}

// For a while: a drive that has room and takes nothing would be one that does not answer.
bool SimDisk::refuses() {
  if (world_.now() - refusing_since_.value_or(world_.now()) >= kRefusesMax ||
      !world_.strikes(Fault::short_submit)) {
    refusing_since_.reset();
    return false;
  }
  if (!refusing_since_) refusing_since_ = world_.now();
  return true;
}

// A request, or what is left of it.
SimDisk::Flight SimDisk::launch(Tag tag) {
  const internal::IoVector& rest = requests_.rest(tag);
  Flight flight{.tag = tag,
                .kind = rest.kind(),
                .offset = rest.offset(),
                .bytes = rest.left_bytes(),
                .write = ++writes_,
                .pieces = {},
                .seal = 0,
                .due = world_.now()};
  if (requests_.refused(tag)) {
    flight.os_error = EINVAL;
    return flight;
  }
  if (flight.kind == Kind::sync) return launch_sync(flight);
  for (const iovec& piece : rest.pieces()) {
    flight.pieces.push_back(
        {static_cast<std::byte*>(piece.iov_base), static_cast<std::uint32_t>(piece.iov_len)});
  }
  witness(flight);
  draw_fate(flight);
  if (flight.kind == Kind::read) {
    for (const IoPiece& piece : flight.pieces) std::memset(piece.data, 0xdb, piece.bytes);
  }
  flight.seal = seal_of(flight.pieces);
  return flight;
}

SimDisk::Flight SimDisk::launch_sync(Flight flight) {
  flight.seal = seal_of(flight.pieces);
  flight.syncs_through = media_->landed();
  flight.submitted = world_.now();
  flight.due += Clock::Time(static_cast<Clock::Time::rep>(world_.luck().skewed(5'000, 9)));
  if (is_dead_ || world_.strikes(Fault::sync_error)) flight.os_error = EIO;
  return flight;
}

// Two requests that meet have no order, on the drive or in memory, unless both only read there.
void SimDisk::witness(const Flight& flight) {
  for (const Flight& other : flights_) {
    if (other.os_error == EINVAL) continue;
    const bool on_drive =
        flight.offset < other.offset + other.bytes && other.offset < flight.offset + flight.bytes;
    world_.check(!on_drive || (flight.kind == Kind::read && other.kind == Kind::read),
                 "two requests in flight meet on the drive");
    if (flight.kind == Kind::write && other.kind == Kind::write) continue;
    for (const IoPiece& piece : flight.pieces) {
      const bool in_memory = std::ranges::any_of(
          other.pieces, [&piece](const IoPiece& taken) { return meet(piece, taken); });
      world_.check(!in_memory, "two requests in flight meet in memory");
    }
  }
}

void SimDisk::draw_fate(Flight& flight) {
  const bool write = flight.kind == Kind::write;
  flight.due += Clock::Time(static_cast<Clock::Time::rep>(world_.luck().skewed(5'000, 7)));
  if (world_.strikes(Fault::latency_spike)) flight.due += 1ms * world_.luck().below(20'000);
  if (world_.strikes(Fault::lost_request)) {
    flight.due += 1000s + 1s * world_.luck().below(2000);
    flight.os_error = ETIMEDOUT;
  }
  if (world_.strikes(Fault::drive_death)) is_dead_ = true;
  if (is_dead_) flight.os_error = EIO;
  if (world_.strikes(write ? Fault::write_error : Fault::read_error)) flight.os_error = EIO;
  if (write && world_.strikes(Fault::drive_full)) flight.os_error = ENOSPC;
  if (write && world_.strikes(Fault::torn_and_told)) {
    flight.os_error = EIO;
    flight.harm = Harm::torn;
  }
  if (flight.os_error != 0) return;
  if (write && world_.strikes(Fault::torn_write)) flight.harm = Harm::torn;
  if (write && world_.strikes(Fault::misdirected_write)) flight.harm = Harm::misdirected;
  if (!write && world_.strikes(Fault::flip_on_read)) flight.harm = Harm::flipped;
  const bool forgets = world_.config().canary == Canary::forgotten_write;
  if (write && forgets && world_.luck().one_in(20)) flight.harm = Harm::forgotten;
}

// ---- Completing.

std::size_t SimDisk::reap(std::span<IoResult> results) {
  world_.look();
  haunt();
  std::size_t count = 0;
  for (std::size_t i = 0; i < flights_.size() && count < results.size();) {
    if (flights_[i].due > world_.now() && !world_.crashed()) {
      ++i;
      continue;
    }
    world_.step();
    Flight flight = std::exchange(flights_[i], std::move(flights_.back()));
    flights_.pop_back();
    const std::int32_t transferred = complete(flight);
    const Outcome outcome = requests_.complete(flight.tag, transferred, results[count]);
    world_.check(outcome != Outcome::foreign,
                 "a drive's own completion is taken for a foreign one");
    if (outcome == Outcome::again) {
      flights_.push_back(launch(flight.tag));
      flights_.back().stalls = flight.stalls + (transferred < std::int32_t{kSectorBytes} ? 1 : 0);
    }
    if (outcome == Outcome::done) ++count;
    world_.clock()->stir();
  }
  while (count < results.size() && hear_echo(results[count])) ++count;
  return count;
}

// Returns: what the kernel says of it.
std::int32_t SimDisk::complete(Flight& flight) {
  std::int32_t transferred = 0;
  if (may_stall(flight) && world_.strikes(Fault::interrupted)) {
    transferred = -EINTR;
  } else if (may_stall(flight) && flight.bytes > 0 && world_.strikes(Fault::short_transfer)) {
    transferred = cut_short(flight);
  } else {
    land(flight);
    transferred = flight.os_error == 0 ? static_cast<std::int32_t>(flight.bytes) : -flight.os_error;
  }
  if (world_.strikes(Fault::duplicate_completion)) echo(flight.tag, transferred);
  return transferred;
}

// The table gives up after eight times.
bool SimDisk::may_stall(const Flight& flight) const {
  return flight.os_error == 0 && !world_.crashed() && flight.stalls < kStallsMax;
}

// Some of its sectors, and perhaps a part of the next one, which nobody may count.
std::int32_t SimDisk::cut_short(Flight& flight) {
  check_memory(flight);
  const auto sectors = static_cast<std::uint32_t>(flight.bytes / kSectorBytes);
  std::uint64_t left = std::uint64_t{world_.luck().below(sectors)} * kSectorBytes;
  const std::uint64_t odd = left == 0 || world_.luck().one_in(4) ? 512 : 0;
  const auto transferred = static_cast<std::int32_t>(left + odd);
  flight.bytes = left;
  std::erase_if(flight.pieces, [&left](IoPiece& piece) {
    piece.bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(piece.bytes, left));
    left -= piece.bytes;
    return piece.bytes == 0;
  });
  if (flight.bytes == 0) return transferred;
  flight.seal = seal_of(flight.pieces);
  land(flight);
  return flight.os_error == 0 ? transferred : -flight.os_error;
}

// The same once more, later: by then its place in the table may be somebody else's.
void SimDisk::echo(Tag tag, std::int32_t transferred) {
  const auto later = static_cast<Clock::Time::rep>(world_.luck().skewed(5'000, 9));
  echoes_.push_back({tag, transferred, world_.now() + Clock::Time(later)});
}

// Returns: whether the table takes an old completion for a result, which it must not.
bool SimDisk::hear_echo(IoResult& result) {
  while (!echoes_.empty()) {
    const auto due = std::ranges::find_if(
        echoes_, [this](const Completion& echo) { return echo.due <= world_.now(); });
    if (due == echoes_.end()) return false;
    Completion echo = std::exchange(*due, echoes_.back());
    echoes_.pop_back();
    const Outcome outcome = requests_.complete(echo.tag, echo.transferred, result);
    if (outcome == Outcome::done) return true;
    world_.check(outcome == Outcome::foreign, "an old completion continues a request");
  }
  return false;
}

void SimDisk::land(Flight& flight) {
  if (flight.os_error == EINVAL) return;
  check_memory(flight);
  if (flight.kind == Kind::sync) return land_sync(flight);
  if (world_.crashed() && flight.os_error == 0) flight.os_error = EIO;
  const bool there = flight.kind == Kind::write || media_->holds(flight.offset, flight.bytes);
  if (flight.os_error == 0 && !there) flight.os_error = EIO;
  flight.kind == Kind::read ? land_read(flight) : land_write(flight);
}

// No more becomes durable than what the contract says.
void SimDisk::land_sync(Flight& flight) {
  if (world_.crashed()) flight.os_error = EIO;
  if (flight.os_error != 0) return;
  media_->sync_through(flight.syncs_through);
  drive_.durable_until = flight.submitted;
  world_.note("a drive is synced");
}

// I8: nobody touches what belongs to the drive.
void SimDisk::check_memory(const Flight& flight) {
  world_.check(seal_of(flight.pieces) == flight.seal,
               flight.kind == Kind::read ? "a buffer of a read in flight was written to"
                                         : "a buffer of a write in flight was changed");
}

void SimDisk::land_read(const Flight& flight) {
  if (flight.os_error != 0) return;
  std::byte* flipped = nullptr;
  for_each_sector(flight.pieces, [&](std::byte* data, std::uint64_t offset) {
    std::ranges::copy(media_->at(flight.offset + offset, kSectorBytes), data);
    if (flipped == nullptr || world_.luck().one_in(3)) flipped = data;
  });
  if (flight.harm == Harm::flipped) {
    flipped[world_.luck().below(kSectorBytes)] ^=
        static_cast<std::byte>(1U << world_.luck().below(8));
  }
  // Only into memory that stays as long as the drive.
  if (world_.config().canary == Canary::late_dma && world_.luck().one_in(4) &&
      meet(flight.pieces.back(), {buffers_.data(), static_cast<std::uint32_t>(buffers_.size())})) {
    ghosts_.push_back(flight);
  }
}

void SimDisk::land_write(const Flight& flight) {
  if (flight.harm == Harm::forgotten) return;
  if (flight.os_error != 0 && flight.harm != Harm::torn) return;
  if (media_->all_durable()) drive_.durable_until = world_.now();  // this is the first that is not
  std::uint64_t to = flight.offset;
  if (flight.harm == Harm::misdirected) {
    to = world_.luck().below(static_cast<std::uint32_t>(size_bytes_ / flight.bytes)) * flight.bytes;
  }
  for_each_sector(flight.pieces, [&](const std::byte* data, std::uint64_t offset) {
    if (flight.harm == Harm::torn && world_.luck().one_in(2)) return;
    media_->write_sector(to + offset, data, flight.write);
  });
}

void SimDisk::haunt() {
  for (const Flight& flight : ghosts_) {
    if (world_.luck().one_in(2)) continue;
    const IoPiece& last = flight.pieces.back();
    std::memset(last.data + last.bytes - kSectorBytes, 0xdb, kSectorBytes);
  }
  std::erase_if(ghosts_, [this](const Flight&) { return world_.luck().one_in(2); });
}

Result<void> SimDisk::sync() {
  world_.step();
  if (world_.crashed() || is_dead_ || world_.strikes(Fault::sync_error))
    return fail(Code::io_error, "the simulated drive cannot sync", EIO);
  media_->sync();
  drive_.durable_until = world_.now();
  return {};
}

void SimDisk::tear_into(Media& image, Random& random) const {
  for (const Flight& flight : flights_) {
    if (flight.kind != Kind::write || flight.os_error == EINVAL) continue;
    const double there = 0.5 * random.below(3);
    for_each_sector(flight.pieces, [&](const std::byte* data, std::uint64_t offset) {
      if (random.chance(there)) image.write_sector(flight.offset + offset, data, flight.write);
    });
  }
}

}  // namespace terrace::sim
