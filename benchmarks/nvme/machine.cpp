#include "nvme/machine.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

namespace terrace::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string filesystem_of(const std::string& path) {
  static const std::map<std::uint32_t, const char*> kNames = {
      {0xef53, "ext4"},          {0x58465342, "xfs"}, {0x9123683e, "btrfs"}, {0x01021994, "tmpfs"},
      {0x794c7630, "overlayfs"}, {0x6969, "nfs"},     {0x2fc12fc1, "zfs"}};
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) return "unknown";
  const auto type = static_cast<std::uint32_t>(status.f_type);
  const auto name = kNames.find(type);
  return name == kNames.end() ? fmt::format("{:#x}", type) : name->second;
}

}  // namespace

nlohmann::json describe_machine(const std::string& path) {
  utsname system{};
  ::uname(&system);
  double load = 0;
  ::getloadavg(&load, 1);
  return {{"cpu", cpu_model()},
          {"cores", std::thread::hardware_concurrency()},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)},
          {"filesystem", filesystem_of(path)},
          {"load_at_start", load}};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace terrace::bench
