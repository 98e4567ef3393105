// Who is told of the records that a start finds on NVMe.
#pragma once

#include <cstdint>

#include "index/record.hpp"

namespace terrace::internal {

class RecordSink {
 public:
  virtual ~RecordSink() = default;
  // In any order; two slots may hold one block. `meta` is valid during the call.
  virtual void add(std::uint32_t slot, const RecordMeta& meta) = 0;
  // What was told of `slot` and of those above it is not so.
  virtual void forget_from(std::uint32_t slot) = 0;
};

}  // namespace terrace::internal
