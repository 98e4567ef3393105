// What a drive does to a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace terrace::test {

// Changes one bit. Returns: whether it could.
inline bool flip_byte(const std::filesystem::path& file, std::uint64_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(at));
  const int byte = stream.get();
  stream.seekp(static_cast<std::streamoff>(at));
  stream.put(static_cast<char>(byte ^ 0x10));
  return byte >= 0 && stream.flush().good();
}

}  // namespace terrace::test
