// I24: a full file system, one without direct I/O or preallocation, a forbidden io_uring and
// `ulimit -l 0` are normal paths. What cannot be undone happens in a child process; what this
// machine does not permit is skipped, visibly.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <fstream>

#include "io/child_process.hpp"
#include "io/device_fixture.hpp"

namespace terrace::test {
namespace {

// A file system of its own in a folder.
class Mount {
 public:
  Mount(const char* type, const char* data) {
    mounted_ = ::mount("none", folder_.path().c_str(), type, 0, data) == 0;
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  ~Mount() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string file() const { return folder_.file(); }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
};

#define REQUIRE_MOUNT(mount) \
  if (!(mount).mounted()) GTEST_SKIP() << "this process may not mount a file system"

BlockDeviceOptions options_for(const std::string& path, const Arena& arena) {
  BlockDeviceOptions options;
  options.path = path;
  options.size_bytes = 64 * block_bytes;
  options.buffers = arena.bytes();
  return options;
}

// From now on `call` fails with `error` in this process. Returns: whether that is permitted here.
bool forbid(long call, int error) {
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K,
               SECCOMP_RET_ERRNO | (static_cast<unsigned>(error) & SECCOMP_RET_DATA)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), const_cast<sock_filter*>(filter)};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

struct Forbidden {
  const char* name;
  long call;
  int error;
};

class UringForbidden : public testing::TestWithParam<Forbidden> {};

TEST_P(UringForbidden, FallsBackToAPlainFileAndSaysSo) {
  const TemporaryFolder folder;
  const Arena arena(4);
  const int result = run_in_child([&] {
    if (!forbid(GetParam().call, GetParam().error)) return not_permitted;
    const auto device = open_block_device(options_for(folder.file(), arena)).value();
    if (device->facts().io_uring || device->facts().registered_buffers) return 1;
    return round_trip(*device, arena, 7) ? 0 : 2;
  });
  if (result == not_permitted) GTEST_SKIP() << "this process may not install a seccomp filter";
  EXPECT_EQ(result, 0);
}

INSTANTIATE_TEST_SUITE_P(Calls, UringForbidden,
                         testing::Values(Forbidden{"Setup", SYS_io_uring_setup, EPERM},
                                         Forbidden{"SetupMissing", SYS_io_uring_setup, ENOSYS},
                                         Forbidden{"SetupNoMemory", SYS_io_uring_setup, ENOMEM},
                                         Forbidden{"Enter", SYS_io_uring_enter, EPERM},
                                         Forbidden{"Register", SYS_io_uring_register, EPERM}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(MemlockForbidden, BuffersAreNotRegisteredAndEverythingWorks) {
  const TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
  const Arena arena(4);
  const int result = run_in_child([&] {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_MEMLOCK, &none) != 0) return not_permitted;
    if (::getuid() == 0 && ::setuid(65534) != 0) return not_permitted;
    const auto device = open_block_device(options_for(folder.file(), arena)).value();
    if (device->facts().registered_buffers) return 1;
    return round_trip(*device, arena, 7) ? 0 : 2;
  });
  if (result == not_permitted) GTEST_SKIP() << "limits and user cannot be changed here";
  EXPECT_EQ(result, 0);
}

// Without fallocate the file is written, not left sparse; its content stays.
TEST(FallocateMissing, TheFileIsWrittenInFull) {
  const TemporaryFolder folder;
  const Arena arena(4);
  const BlockDeviceOptions options = options_for(folder.file(), arena);
  fill_block(arena.block(0), 2, 5);
  {
    // A block in the middle of a hole, and an odd end.
    std::ofstream file(folder.file(), std::ios::binary);
    file.seekp(2 * block_bytes);
    file.write(reinterpret_cast<const char*>(arena.block(0)), block_bytes);
    file.seekp(10 * block_bytes + 77);
    file.put('x');
  }
  const int result = run_in_child([&] {
    if (!forbid(SYS_fallocate, EOPNOTSUPP)) return not_permitted;
    const auto device = open_block_device(options).value();
    if (transfer_one(*device, request(IoRequest::Kind::read, 2, arena.block(1), 1)) != 0) return 1;
    return is_block(arena.block(1), 2, 5) ? 0 : 2;
  });
  if (result == not_permitted) GTEST_SKIP() << "this process may not install a seccomp filter";
  EXPECT_EQ(result, 0);
  EXPECT_EQ(file_bytes(folder.file()), options.size_bytes);
  EXPECT_GE(allocated_bytes(folder.file()), options.size_bytes);
}

TEST(DirectIoMissing, GoesThroughThePageCacheAndSaysSo) {
  const Mount ramfs("ramfs", nullptr);
  REQUIRE_MOUNT(ramfs);
  const Arena arena(4);
  for (const bool io_uring : {true, false}) {
    BlockDeviceOptions options = options_for(ramfs.file(), arena);
    options.io_uring = io_uring;
    const auto device = open_block_device(options).value();
    EXPECT_FALSE(device->facts().direct);
    EXPECT_TRUE(round_trip(*device, arena, 7));
    EXPECT_EQ(file_bytes(ramfs.file()), options.size_bytes);
  }
}

// Some file systems take the flag and refuse the first transfer.
TEST(DirectIoMissing, ARefusedFirstReadCountsToo) {
  const TemporaryFolder folder;
  const Arena arena(4);
  const int result = run_in_child([&] {
    if (!forbid(SYS_pread64, EINVAL)) return not_permitted;
    return open_block_device(options_for(folder.file(), arena)).value()->facts().direct ? 1 : 0;
  });
  if (result == not_permitted) GTEST_SKIP() << "this process may not install a seccomp filter";
  EXPECT_EQ(result, 0);
}

TEST(FileSystemFull, ANewFileIsAnErrorAndLeavesNothing) {
  const Mount tmpfs("tmpfs", "size=2m");
  REQUIRE_MOUNT(tmpfs);
  const Arena arena(4);
  const auto opened = open_block_device(options_for(tmpfs.file(), arena));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::io_error);
  EXPECT_EQ(opened.error().os_error, ENOSPC);
  EXPECT_NE(std::string(opened.error().message).find("no room"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(tmpfs.file()));
}

TEST(FileSystemFull, AnExistingFileStaysAsItWas) {
  const Mount tmpfs("tmpfs", "size=2m");
  REQUIRE_MOUNT(tmpfs);
  const Arena arena(4);
  BlockDeviceOptions options = options_for(tmpfs.file(), arena);
  options.size_bytes = 8 * block_bytes;
  ASSERT_TRUE(round_trip(*open_block_device(options).value(), arena, 5));
  options.size_bytes = 64 * block_bytes;
  EXPECT_EQ(open_block_device(options).error().os_error, ENOSPC);
  EXPECT_EQ(file_bytes(tmpfs.file()), 8 * block_bytes);
  options.size_bytes = 8 * block_bytes;
  const auto device = open_block_device(options).value();
  ASSERT_EQ(transfer_one(*device, request(IoRequest::Kind::read, 5, arena.block(2), 1)), 0);
  EXPECT_TRUE(is_block(arena.block(2), 5, 1));
}

// The same without fallocate: the zeros that did fit are taken back.
TEST(FileSystemFull, ZerosThatDidFitAreTakenBack) {
  const Mount tmpfs("tmpfs", "size=2m");
  REQUIRE_MOUNT(tmpfs);
  const Arena arena(4);
  std::ofstream(tmpfs.file(), std::ios::binary) << "old";
  const int result = run_in_child([&] {
    if (!forbid(SYS_fallocate, EOPNOTSUPP)) return not_permitted;
    return open_block_device(options_for(tmpfs.file(), arena)).error().os_error == ENOSPC ? 0 : 1;
  });
  if (result == not_permitted) GTEST_SKIP() << "this process may not install a seccomp filter";
  EXPECT_EQ(result, 0);
  EXPECT_EQ(file_bytes(tmpfs.file()), 3u);
}

}  // namespace
}  // namespace terrace::test
