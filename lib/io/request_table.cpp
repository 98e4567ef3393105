// Requests in flight; see request_table.hpp.
#include "io/request_table.hpp"

#include <cerrno>

#include "io/block_file.hpp"

namespace terrace::internal {
namespace {

constexpr std::uint8_t retries_max = 8;
constexpr int unfinished = -1;

RequestTable::Tag tag_of(std::uint32_t generation, std::uint32_t slot) {
  return RequestTable::Tag{generation} << 32 | slot;
}
std::uint32_t slot_of(RequestTable::Tag tag) {
  return static_cast<std::uint32_t>(tag);
}
std::uint32_t generation_of(RequestTable::Tag tag) {
  return static_cast<std::uint32_t>(tag >> 32);
}

// ECANCELED: the kernel gives up what a thread had submitted when that thread ends.
bool is_transient(int error) {
  return error == EAGAIN || error == EINTR || error == ECANCELED;
}

}  // namespace

RequestTable::RequestTable(std::uint32_t depth) : slots_(depth) {
  free_.reserve(depth);
  for (std::uint32_t slot = depth; slot > 0; --slot) free_.push_back(slot - 1);
}

RequestTable::Tag RequestTable::add(const IoRequest& request, int os_error) {
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  if (os_error == 0) slot.rest.start(request);
  slot.user_data = request.user_data;
  slot.os_error = os_error;
  slot.retries = 0;
  slot.used = true;
  return tag_of(slot.generation, index);
}

RequestTable::Outcome RequestTable::complete(Tag& tag, std::int32_t transferred, IoResult& result) {
  const std::uint32_t index = slot_of(tag);
  if (index >= slots_.size()) return Outcome::foreign;
  Slot& slot = slots_[index];
  if (!slot.used || slot.generation != generation_of(tag)) return Outcome::foreign;
  const int error = verdict(slot, transferred);
  ++slot.generation;
  if (error == unfinished) {
    tag = tag_of(slot.generation, index);
    return Outcome::again;
  }
  result = {slot.user_data, error};
  slot.used = false;
  free_.push_back(index);
  return Outcome::done;
}

// Returns: 0 or errno, the request's result; `unfinished`.
int RequestTable::verdict(Slot& slot, std::int32_t transferred) {
  if (slot.os_error != 0) return slot.os_error;
  const bool sync = slot.rest.kind() == IoRequest::Kind::sync;
  if (transferred == 0) return sync ? 0 : EIO;  // end of file: the file has become shorter
  if (transferred < 0 && !is_transient(-transferred)) return -transferred;
  // A part is counted in whole blocks: direct I/O cannot continue from elsewhere.
  const std::uint32_t bytes = transferred < 0 ? 0 : static_cast<std::uint32_t>(transferred);
  const std::uint32_t blocks = bytes / block_alignment * block_alignment;
  if (bytes > slot.rest.left_bytes()) return EIO;  // more than asked for: not trusted
  slot.rest.advance(blocks);
  if (slot.rest.left_bytes() == 0 && !sync) return 0;
  if (blocks == 0 && ++slot.retries > retries_max) return transferred < 0 ? -transferred : EIO;
  return unfinished;
}

const IoVector& RequestTable::rest(Tag tag) const {
  return slots_[slot_of(tag)].rest;
}

bool RequestTable::refused(Tag tag) const {
  return slots_[slot_of(tag)].os_error != 0;
}

}  // namespace terrace::internal
