// A block device over Media, with the faults of a drive and the ways of a kernel, whose completions it
// reads with the table of the real device. It is also a witness: memory of a request in flight belongs
// to it, and two requests must not meet, so it reports who does not keep to that.
//
// Bytes move when a request completes, at some time after it was submitted, in any order; until
// then a buffer of a read holds garbage.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "io/request_table.hpp"
#include "sim/media.hpp"
#include "sim/world.hpp"
#include "terrace/io.hpp"

namespace terrace::sim {

class SimDisk;

// A drive, and the device that has it open. After a crash the drive has other media than the device
// of the process that died.
struct Drive {
  std::shared_ptr<Media> media;
  const SimDisk* user = nullptr;
  // What was completed before is durable. Of the present user.
  Clock::Time durable_until{0};
  std::uint64_t runs = 0;  // requests of several pieces
};

class SimDisk final : public BlockDevice {
 public:
  // REQUIRES: nobody uses `drive`, which outlives the device.
  SimDisk(World& world, Drive& drive, const BlockDeviceOptions& options);
  ~SimDisk() override;

  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  std::uint32_t alignment() const noexcept override { return kSectorBytes; }
  BlockDeviceFacts facts() const noexcept override { return {true, true, true, false}; }
  std::size_t submit(std::span<const IoRequest> requests) override;
  std::size_t reap(std::span<IoResult> results) override;
  std::size_t in_flight() const noexcept override { return requests_.in_flight(); }
  int wait_fd() const noexcept override { return world_.ready_fd(); }
  Result<void> sync() override;

  // What a crash leaves of the writes in flight, sector by sector, in `image`.
  void tear_into(Media& image, Random& random) const;

 private:
  enum class Harm : std::uint8_t { none, torn, misdirected, flipped, forgotten };

  using Tag = internal::RequestTable::Tag;

  struct Flight {
    Tag tag;
    IoRequest::Kind kind;
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint64_t write;  // its number
    std::vector<IoPiece> pieces;
    std::uint64_t seal;  // of its memory, as it must stay while it is in flight
    Clock::Time due;
    // Of a sync: when it was submitted, and what had landed then.
    Clock::Time submitted{0};
    std::uint64_t syncs_through = 0;
    int os_error = 0;
    Harm harm = Harm::none;
    int stalls = 0;  // how often its request was sent in vain
  };

  struct Completion {
    Tag tag;
    std::int32_t transferred;  // or minus errno
    Clock::Time due;
  };

  Flight launch(Tag tag);
  Flight launch_sync(Flight flight);
  void witness(const Flight& flight);
  void draw_fate(Flight& flight);
  std::int32_t complete(Flight& flight);
  std::int32_t cut_short(Flight& flight);
  void echo(Tag tag, std::int32_t transferred);
  bool may_stall(const Flight& flight) const;
  bool hear_echo(IoResult& result);
  void land(Flight& flight);
  void land_sync(Flight& flight);
  void land_read(const Flight& flight);
  void land_write(const Flight& flight);
  void check_memory(const Flight& flight);
  void haunt();
  bool refuses();

  World& world_;
  Drive& drive_;
  const std::shared_ptr<Media> media_;
  const std::uint64_t size_bytes_;
  internal::RequestTable requests_;
  const std::span<std::byte> buffers_;
  std::vector<Flight> flights_;
  std::optional<Clock::Time> refusing_since_;  // of requests for which there is room
  std::uint64_t writes_ = 0;
  std::vector<Completion> echoes_;  // of requests that are long over
  bool is_dead_ = false;            // from now on everything fails
  std::vector<Flight> ghosts_;      // of the canary: reads that will write once more
};

}  // namespace terrace::sim
