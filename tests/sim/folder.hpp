// A folder in memory, where the machine has one: the directories of simulated drives hold a lock and
// a manifest, and nobody need wait for a real disk to sync them. Gone with the object.
// Thread rule: one thread.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace terrace::sim {

class Folder {
 public:
  Folder() {
    const std::filesystem::path memory = "/dev/shm";
    const auto parent =
        std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
    path_ = (parent / "terrace-sim-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace terrace::sim
