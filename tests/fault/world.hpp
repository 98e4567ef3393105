// What goes wrong in the world, made on purpose: forbidden system calls, full file systems, a
// device that stands still or fails.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>

#include <cstddef>
#include <memory>
#include <string>

#include "cache/harness.hpp"
#include "io/child_process.hpp"

namespace terrace::test {

// From now on `call` fails with `error` in this process. Returns: whether that is permitted here.
inline bool forbid(long call, int error) {
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

// A file system of its own, so large and no larger.
class SmallFileSystem {
 public:
  explicit SmallFileSystem(std::uint64_t bytes) {
    const std::string size = "size=" + std::to_string(bytes);
    mounted_ = ::mount("none", folder_.path().c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;
  ~SmallFileSystem() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string operator/(const char* name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
};

// The host device, which can be made to stand still, and whose copies can be made to fail.
class UnrulyDevice final : public CopyEngine {
 public:
  void stand_still(bool still) { still_ = still; }
  // The n-th copy() from now on fails, and all that follow if `for_good`; 0: none.
  void fail_copy(std::uint32_t nth, bool for_good = false) {
    fails_in_ = nth;
    for_good_ = for_good;
  }
  bool has_failed() const { return has_failed_; }

  std::string_view name() const noexcept override { return host_->name(); }
  Result<std::byte*> allocate(std::size_t bytes) override { return host_->allocate(bytes); }
  void deallocate(std::byte* base) noexcept override { host_->deallocate(base); }
  Result<void> pin(std::byte* base, std::size_t bytes) override { return host_->pin(base, bytes); }
  void unpin(std::byte* base) noexcept override { host_->unpin(base); }
  Result<StreamId> create_stream() override { return host_->create_stream(); }
  void destroy_stream(StreamId stream) noexcept override { host_->destroy_stream(stream); }
  Result<void> copy(StreamId stream, std::span<const Copy> copies) override {
    if (fails_in_ > 0 && (fails_in_ == 1 || --fails_in_ == 0)) {
      fails_in_ = for_good_ ? 1 : 0;
      has_failed_ = true;
      return fail(Code::io_error, "the device has failed, on purpose");
    }
    return host_->copy(stream, copies);
  }
  Result<StreamPoint> record(StreamId stream) override { return host_->record(stream); }
  Result<void> wait(StreamId stream, StreamPoint point) override {
    return host_->wait(stream, point);
  }
  PointState query(StreamPoint point) noexcept override { return host_->query(point); }
  PointState synchronize(StreamPoint point) noexcept override { return host_->synchronize(point); }
  bool progress(std::size_t budget_bytes) override {
    return !still_ && host_->progress(budget_bytes);
  }

 private:
  const std::unique_ptr<CopyEngine> host_ = make_host_copy_engine();
  bool still_ = false;
  bool for_good_ = false;
  bool has_failed_ = false;
  std::uint32_t fails_in_ = 0;
};

}  // namespace terrace::test
