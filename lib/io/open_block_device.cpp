// Chooses the block device: io_uring where it works, plain file I/O otherwise; direct I/O where the
// file system has it.
//
// Must never fail for want of a fast path: facts() says which path was taken. Called at cache open.
// Thread rule: any.
#include <cerrno>
#include <limits>

#include "io/block_file.hpp"
#include "io/file_device.hpp"
#if defined(TERRACE_WITH_IO_URING)
#include "io/uring_device.hpp"
#endif

namespace terrace {
namespace {

constexpr std::uint32_t queue_depth_limit = 4096;

Result<void> check(const BlockDeviceOptions& options) {
  if (options.path.empty())
    return fail(Code::invalid_argument, "BlockDeviceOptions::path is empty");
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (options.size_bytes == 0 || options.size_bytes > largest ||
      options.size_bytes % internal::block_alignment != 0) {
    return fail(Code::invalid_argument,
                "BlockDeviceOptions::size_bytes must be a positive multiple of 4096");
  }
  if (options.queue_depth_max == 0 || options.queue_depth_max > queue_depth_limit) {
    return fail(Code::invalid_argument,
                "BlockDeviceOptions::queue_depth_max must be from 1 to 4096");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<BlockDevice>> open_block_device(const BlockDeviceOptions& options) {
  if (const Result<void> checked = check(options); !checked) return unexpected(checked.error());
  Result<internal::BlockFile> file = internal::BlockFile::open(options);
  if (!file) return unexpected(file.error());
#if defined(TERRACE_WITH_IO_URING)
  if (options.io_uring) {
    auto device = internal::UringDevice::create(*file, options);
    if (device) return device;
  }
#endif
  return std::unique_ptr<BlockDevice>(
      std::make_unique<internal::FileDevice>(std::move(*file), options.queue_depth_max));
}

}  // namespace terrace
