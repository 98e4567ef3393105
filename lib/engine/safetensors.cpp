#include "engine/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "engine/tokenizer/load_error.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

constexpr std::uint64_t kPrefixBytes = 8;               // the header's length, little-endian
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // the format's own bound

constexpr const char* kDownloadAgain = "the file is damaged or incomplete: download it again";

// Returns: a * b, or nothing where it does not fit in 64 bits.
std::optional<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional(product);
}

// Parses one header entry; `file` and the tensor's name go into every message.
class EntryParser {
 public:
  EntryParser(const std::filesystem::path& file, std::span<const std::byte> data)
      : file_(file), data_(data) {}

  SafetensorsFile::Entry parse(const std::string& name, const json& value) {
    name_ = name;
    if (!value.is_object()) fail("its header entry is not an object");
    SafetensorsFile::Entry entry;
    entry.info.name = name;
    entry.info.dtype = text(value, "dtype");
    entry.info.shape = numbers(value, "shape");
    const auto offsets = numbers(value, "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1]) fail("data_offsets is not [begin, end]");
    if (offsets[1] > data_.size()) {
      fail(fmt::format("its data ends at byte {} of the data section, which has only {} bytes",
                       offsets[1], data_.size()));
    }
    entry.data = data_.subspan(offsets[0], offsets[1] - offsets[0]);
    check_size(entry);
    return entry;
  }

 private:
  std::string text(const json& value, const char* field) const {
    const auto it = value.find(field);
    if (it == value.end() || !it->is_string()) fail(fmt::format("{} is not a string", field));
    return it->get<std::string>();
  }
  std::vector<std::uint64_t> numbers(const json& value, const char* field) const {
    const auto it = value.find(field);
    if (it == value.end() || !it->is_array()) fail(fmt::format("{} is not a list", field));
    std::vector<std::uint64_t> list;
    for (const json& number : *it) {
      if (!number.is_number_unsigned()) fail(fmt::format("{} has a bad number", field));
      list.push_back(number.get<std::uint64_t>());
    }
    return list;
  }
  void check_size(const SafetensorsFile::Entry& entry) const {
    std::optional<std::uint64_t> bytes = dtype_bytes(entry.info.dtype);
    if (*bytes == 0) fail(fmt::format("its dtype \"{}\" is unknown", entry.info.dtype));
    for (const std::uint64_t extent : entry.info.shape) {
      bytes = bytes ? checked_product(*bytes, extent) : bytes;
    }
    if (!bytes) fail("its shape overflows");
    if (*bytes != entry.data.size()) {
      fail(fmt::format("its shape and dtype need {} bytes, data_offsets span {}", *bytes,
                       entry.data.size()));
    }
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw LoadError(
        fmt::format("{}: tensor \"{}\": {}; {}", file_.string(), name_, what, kDownloadAgain));
  }

  const std::filesystem::path& file_;
  std::span<const std::byte> data_;
  std::string name_;
};

void refuse_overlaps(const std::filesystem::path& file,
                     std::vector<SafetensorsFile::Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const auto& before = entries[i - 1];
    if (before.data.data() + before.data.size() > entries[i].data.data()) {
      throw LoadError(fmt::format("{}: tensors \"{}\" and \"{}\" overlap; {}", file.string(),
                                  before.info.name, entries[i].info.name, kDownloadAgain));
    }
  }
}

}  // namespace

const TensorInfo* TensorSource::find(std::string_view tensor_name) const {
  const auto all = tensors();
  const auto it = std::lower_bound(
      all.begin(), all.end(), tensor_name,
      [](const TensorInfo& info, std::string_view wanted) { return info.name < wanted; });
  return it != all.end() && it->name == tensor_name ? &*it : nullptr;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : file_(std::move(path)) {
  const std::string where = file_.path().string();
  const std::span<const std::byte> bytes = file_.bytes();
  if (bytes.size() < kPrefixBytes) {
    throw LoadError(fmt::format("{}: has {} bytes, less than a header; {}", where, bytes.size(),
                                kDownloadAgain));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kPrefixBytes);
  const std::uint64_t room = std::min(bytes.size() - kPrefixBytes, kHeaderBytesMax);
  if (header_bytes > room) {
    throw LoadError(fmt::format("{}: says its header has {} bytes, {} at most are possible; {}",
                                where, header_bytes, room, kDownloadAgain));
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data() + kPrefixBytes);
  const json header = json::parse(text, text + header_bytes, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) {
    throw LoadError(fmt::format("{}: its header is not a JSON object; {}", where, kDownloadAgain));
  }
  EntryParser parser(file_.path(), bytes.subspan(kPrefixBytes + header_bytes));
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") entries_.push_back(parser.parse(name, value));
  }
  refuse_overlaps(file_.path(), entries_);
}

Checkpoint::Checkpoint(const std::filesystem::path& directory) : directory_(directory) {
  const auto single = directory / "model.safetensors";
  const auto index = directory / "model.safetensors.index.json";
  if (std::filesystem::exists(single)) {
    files_.push_back(std::make_unique<SafetensorsFile>(single));
  } else if (std::filesystem::exists(index)) {
    open_shards(index);
  } else {
    throw LoadError(fmt::format(
        "{}: has neither model.safetensors nor model.safetensors.index.json; give the directory of "
        "a Hugging Face checkpoint in safetensors format (convert pytorch_model.bin first)",
        directory.string()));
  }
  collect();
}

void Checkpoint::open_shards(const std::filesystem::path& index) {
  std::ifstream in(index, std::ios::binary);
  const json object = json::parse(in, nullptr, /*allow_exceptions=*/false);
  const auto map = object.is_object() ? object.find("weight_map") : object.end();
  if (!object.is_object() || map == object.end() || !map->is_object() || map->empty()) {
    throw LoadError(fmt::format("{}: has no \"weight_map\"; {}", index.string(), kDownloadAgain));
  }
  std::map<std::string, std::set<std::string>> tensors_of;
  for (const auto& [tensor, value] : map->items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    if (file.empty() || std::filesystem::path(file).filename() != file) {
      throw LoadError(fmt::format("{}: the file of tensor \"{}\" is not a plain file name; {}",
                                  index.string(), tensor, kDownloadAgain));
    }
    tensors_of[file].insert(tensor);
  }
  for (auto& [name, wanted] : tensors_of) {
    if (!std::filesystem::exists(directory_ / name)) {
      throw LoadError(
          fmt::format("{}: the shard {} is missing; download it as well", index.string(), name));
    }
    const auto& file = files_.emplace_back(std::make_unique<SafetensorsFile>(directory_ / name));
    for (const auto& entry : file->entries()) wanted.erase(entry.info.name);
    if (!wanted.empty()) {
      throw LoadError(fmt::format("{}: tensor \"{}\" is missing, which {} places there; {}",
                                  file->file().path().string(), *wanted.begin(), index.string(),
                                  kDownloadAgain));
    }
  }
}

void Checkpoint::collect() {
  for (const auto& file : files_) {
    for (const auto& entry : file->entries()) {
      tensors_.push_back(entry.info);
      tensors_.back().index = data_.size();
      data_.push_back(entry.data);
    }
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors_.begin(), tensors_.end(),
                         [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twice != tensors_.end()) {
    throw LoadError(fmt::format("{}: tensor \"{}\" is in two shards; {}", directory_.string(),
                                twice->name, kDownloadAgain));
  }
}

std::span<const std::byte> Checkpoint::read(const TensorInfo& tensor, std::uint64_t first,
                                            std::uint64_t count,
                                            std::vector<std::byte>& /*scratch*/) const {
  const std::uint64_t size = dtype_bytes(tensor.dtype);
  return data_.at(tensor.index).subspan(first * size, count * size);
}

std::vector<FileStamp> Checkpoint::stamps() const {
  std::vector<FileStamp> stamps;
  for (const auto& file : files_) stamps.push_back(file->file().stamp());
  return stamps;
}

}  // namespace terrace::engine
