// Disks that a hypervisor emulates, and memory that leaves the processor's caches for them.
#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <vector>

#include "io/block_file.hpp"
#include "io/cache_lines.hpp"
#include "io/device_fixture.hpp"

namespace terrace::test {
namespace {

using internal::is_virtual_disk;

TEST(VirtualDisk, IsKnownByItsDriver) {
  const TemporaryFolder folder;
  const std::string devices = folder.path();
  const auto add = [&](const char* number, const char* device) {
    std::filesystem::create_symlink(device, devices + "/" + number);
  };
  add("254:0", "../../devices/pci0000:00/0000:00:02.0/virtio1/block/vda");
  add("254:1", "../../devices/pci0000:00/0000:00:02.0/virtio1/block/vda/vda1");
  add("259:0", "../../devices/pci0000:00/0000:00:1d.0/0000:03:00.0/nvme/nvme0/nvme0n1");
  EXPECT_TRUE(is_virtual_disk(makedev(254, 0), devices));
  EXPECT_TRUE(is_virtual_disk(makedev(254, 1), devices)) << "a partition of it";
  EXPECT_FALSE(is_virtual_disk(makedev(259, 0), devices));
  EXPECT_FALSE(is_virtual_disk(makedev(0, 40), devices)) << "a file system without a disk";
  EXPECT_FALSE(is_virtual_disk(makedev(254, 0), devices + "/none"));
}

TEST(CacheLines, FlushingChangesNothing) {
  std::vector<std::byte> memory(4096 + 17);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7);
  const std::vector<std::byte> before = memory;
  internal::flush_lines(memory);
  internal::flush_lines(std::span(memory).subspan(5, 3));
  internal::flush_lines({});
  EXPECT_EQ(memory, before);
}

}  // namespace
}  // namespace terrace::test
