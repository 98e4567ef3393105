#include "nvme/peers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

namespace terrace::bench {
namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             &::pclose);
  if (pipe == nullptr) return {};
  std::string output;
  std::array<char, 4096> bytes;
  while (const std::size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe.get()))
    output.append(bytes.data(), count);
  return output;
}

int opened(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd < 0) throw std::runtime_error("cannot open " + path);
  return fd;
}

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

}  // namespace

bool has_fio() {
  return !output_of("command -v fio").empty();
}

Sample run_fio(const FioJob& job) {
  const std::string text = output_of(
      fmt::format("fio --name=job --filename='{}' --rw={} --bs={} --iodepth={} --io_size={} "
                  "--ioengine=io_uring "
                  "--direct=1 --fixedbufs=1 --registerfiles=1 --randrepeat=1 --norandommap=1 "
                  "--output-format=json",
                  job.file, job.write ? "randwrite" : "randread", job.request_bytes, job.depth,
                  job.requests * job.request_bytes));
  const auto start = text.find('{');
  require(start != std::string::npos, "fio failed: " + text);
  const auto result = nlohmann::json::parse(text.substr(start)).at("jobs").at(0);
  const auto& side = result.at(job.write ? "write" : "read");
  const double share =
      static_cast<double>(job.payload_bytes) / static_cast<double>(job.request_bytes);
  const double gbps = side.at("bw_bytes").get<double>() * share / 1e9;
  const double busy =
      (result.at("usr_cpu").get<double>() + result.at("sys_cpu").get<double>()) / 100;
  return {gbps, busy / gbps};
}

FilePerBlock::FilePerBlock(std::string directory, std::uint64_t block_bytes, std::uint32_t count)
    : directory_(std::move(directory)), count_(count), bytes_(block_bytes, '\0') {
  std::filesystem::create_directories(directory_);
  std::mt19937 random(1);
  for (char& byte : bytes_) byte = static_cast<char>(random());
}

FilePerBlock::~FilePerBlock() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::string FilePerBlock::path(std::uint32_t block) const {
  return fmt::format("{}/{:08x}", directory_, block);
}

Sample FilePerBlock::write() {
  return measure(count_ * bytes_.size(), [this] {
    for (std::uint32_t block = 0; block < count_; ++block) {
      const int fd = opened(path(block), O_WRONLY | O_CREAT | O_TRUNC);
      const ssize_t written = ::write(fd, bytes_.data(), bytes_.size());
      ::close(fd);
      require(written == static_cast<ssize_t>(bytes_.size()), "a file is not written");
    }
    const int fd = opened(directory_, O_RDONLY | O_DIRECTORY);
    ::syncfs(fd);
    ::close(fd);
  });
}

Sample FilePerBlock::read() {
  for (std::uint32_t block = 0; block < count_; ++block) {
    const int fd = opened(path(block), O_RDONLY);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
  return measure(count_ * bytes_.size(), [this] {
    for (std::uint32_t block = 0; block < count_; ++block) {
      const int fd = opened(path(block), O_RDONLY);
      const ssize_t read = ::read(fd, bytes_.data(), bytes_.size());
      ::close(fd);
      require(read == static_cast<ssize_t>(bytes_.size()), "a file is not read");
    }
  });
}

}  // namespace terrace::bench
