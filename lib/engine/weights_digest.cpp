#include "engine/weights_digest.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>

#include "engine/tokenizer/load_error.hpp"

namespace terrace::engine {
namespace {

constexpr std::uint64_t kStepBytes = std::uint64_t{8} << 20;  // hashed between two progress reports
constexpr const char* kFormat = "terrace-weights-digest 1";

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void update(std::span<const std::byte> bytes) {
    check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  Digest finish() {
    Digest digest;
    check(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                             nullptr) == 1);
    return digest;
  }

 private:
  static void check(bool ok) {
    if (!ok) throw LoadError("SHA-256 is not available from the cryptographic library (OpenSSL)");
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// Adds up what all threads have hashed.
class Count {
 public:
  Count(const Progress& progress, std::uint64_t total) : progress_(progress), total_(total) {}

  void add(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    if (progress_) progress_("hashing weights", done_, total_);
  }

 private:
  const Progress& progress_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::mutex mutex_;
};

Digest hash_tensor(const TensorSource& source, const TensorInfo& tensor, Count& count) {
  Sha256 hash;
  std::vector<std::byte> scratch;
  const std::uint64_t elements = tensor.elements();
  const std::uint64_t step = kStepBytes / dtype_bytes(tensor.dtype);
  for (std::uint64_t first = 0; first < elements; first += step) {
    const auto bytes = source.read(tensor, first, std::min(step, elements - first), scratch);
    hash.update(bytes);
    count.add(bytes.size());
  }
  return hash.finish();
}

// One line a file; the memory's file name is its hash, and the file repeats it.
std::string describe(const std::vector<FileStamp>& files) {
  std::string text;
  for (const FileStamp& file : files) {
    text += fmt::format("file {} {} {} {} {}\n", file.device, file.inode, file.bytes,
                        file.modified_ns, file.changed_ns);
  }
  return text;
}

std::string record(const std::vector<FileStamp>& files, const Digest& digest) {
  const std::string body =
      fmt::format("{}\n{}digest {}\n", kFormat, describe(files), to_hex(digest));
  return body + fmt::format("check {}\n", to_hex(sha256(std::as_bytes(std::span(body)))));
}

std::string name_of(const std::vector<FileStamp>& files) {
  const std::string text = describe(files);
  return fmt::format("weights-{}.digest", to_hex(sha256(std::as_bytes(std::span(text)))));
}

std::optional<Digest> parse_hex(std::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    unsigned value = 0;
    for (const char c : hex.substr(2 * i, 2)) {
      const auto at = std::string_view("0123456789abcdef").find(c);
      if (at == std::string_view::npos) return std::nullopt;
      value = value * 16 + static_cast<unsigned>(at);
    }
    digest[i] = static_cast<std::byte>(value);
  }
  return digest;
}

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Written aside and renamed, so that a reader sees all of it or nothing.
bool write_atomically(const std::filesystem::path& path, const std::string& content) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const auto aside = path.string() + fmt::format(".{}.tmp", ::getpid());
  {
    std::ofstream out(aside, std::ios::binary | std::ios::trunc);
    out << content;
    if (!out.flush()) {
      std::filesystem::remove(aside, error);
      return false;
    }
  }
  std::filesystem::rename(aside, path, error);
  if (!error) return true;
  std::filesystem::remove(aside, error);
  return false;
}

bool settled(const std::vector<FileStamp>& files, std::chrono::nanoseconds age) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::all_of(files.begin(), files.end(), [&](const FileStamp& file) {
    const auto latest = std::chrono::nanoseconds(std::max(file.modified_ns, file.changed_ns));
    return now - latest >= age;
  });
}

}  // namespace

Digest hash_weights(const TensorSource& source, ThreadTeam& team, const Progress& progress) {
  const auto tensors = source.tensors();
  // Largest first: the threads then end together.
  std::vector<std::uint32_t> order(tensors.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return tensors[a].bytes() > tensors[b].bytes();
  });
  std::uint64_t total = 0;
  for (const TensorInfo& tensor : tensors) total += tensor.bytes();
  Count count(progress, total);
  std::vector<TensorDigest> digests(tensors.size());
  team.for_each(static_cast<std::uint32_t>(order.size()), [&](std::uint32_t index, unsigned) {
    const TensorInfo& tensor = tensors[order[index]];
    digests[order[index]] = {tensor.name, tensor.shape, tensor.dtype,
                             hash_tensor(source, tensor, count)};
  });
  const auto combined = weights_digest(digests);
  if (!combined) throw LoadError(source.name() + ": " + combined.error().message);
  return *combined;
}

DigestMemory::DigestMemory(std::filesystem::path directory, std::chrono::nanoseconds settled)
    : directory_(std::move(directory)), settled_(settled) {}

std::optional<Digest> DigestMemory::recall(const std::vector<FileStamp>& files) const {
  const std::string text = read_all(directory_ / name_of(files));
  constexpr std::string_view kLabel = "\ndigest ";
  const auto at = text.find(kLabel);
  if (at == std::string::npos) return std::nullopt;
  const auto digest = parse_hex(std::string_view(text).substr(at + kLabel.size()).substr(0, 64));
  // Byte for byte what would be written now, check included: anything else was damaged.
  if (!digest || record(files, *digest) != text) return std::nullopt;
  return digest;
}

bool DigestMemory::remember(const std::vector<FileStamp>& files, const Digest& digest) const {
  if (!settled(files, settled_)) return false;
  return write_atomically(directory_ / name_of(files), record(files, digest));
}

Digest checkpoint_digest(const Checkpoint& checkpoint, const DigestMemory* memory, ThreadTeam& team,
                         const Progress& progress) {
  const auto before = checkpoint.stamps();
  if (memory != nullptr) {
    if (const auto known = memory->recall(before)) return *known;
  }
  const Digest digest = hash_weights(checkpoint, team, progress);
  if (memory != nullptr && checkpoint.stamps() == before) memory->remember(before, digest);
  return digest;
}

}  // namespace terrace::engine
