// The weights digest of a checkpoint, and its memory: hashing gigabytes at each start would take
// longer than loading.
//
// A remembered digest is used only where every file still has the device, inode, size and times it
// was hashed with. The memory is a convenience: it may be lost, damaged or impossible to write, and
// then the tensors are hashed. Called by load_model().
// Thread rule: call from one thread; processes may share a cache directory.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "engine/safetensors.hpp"
#include "engine/tensor_source.hpp"
#include "engine/thread_team.hpp"
#include "terrace/identity.hpp"

namespace terrace::engine {

// Hashes every tensor of `source`, one a thread at a time, and combines the digests
// (terrace::weights_digest).
Digest hash_weights(const TensorSource& source, ThreadTeam& team, const Progress& progress);

// Remembered digests, one small file each.
class DigestMemory {
 public:
  // `directory` is created when the first digest is remembered. Files changed less than `settled`
  // ago are not remembered: a write within the file system's clock tick would leave the same times.
  explicit DigestMemory(std::filesystem::path directory,
                        std::chrono::nanoseconds settled = std::chrono::seconds(2));

  // Returns: the digest remembered for exactly these files, or nothing.
  std::optional<Digest> recall(const std::vector<FileStamp>& files) const;
  // Returns: whether it was written; false is no error.
  bool remember(const std::vector<FileStamp>& files, const Digest& digest) const;

 private:
  std::filesystem::path directory_;
  std::chrono::nanoseconds settled_;
};

// The digest of `checkpoint`: recalled, or hashed and remembered. `memory` may be null.
Digest checkpoint_digest(const Checkpoint& checkpoint, const DigestMemory* memory, ThreadTeam& team,
                         const Progress& progress);

}  // namespace terrace::engine
