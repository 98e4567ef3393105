// Fuzzes the parser of manifests: text in a directory that anyone may have written.
//
// Mode 0 gives the input to the parser as it is; mode 1 puts a piece of it over a good manifest, so that
// what stands behind the first line is reached. Whatever is taken must be what would be written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tier/nvme_manifest.hpp"

namespace {

using namespace terrace;
using namespace terrace::internal;

void require(bool condition) {
  if (!condition) std::abort();
}

const std::string& good_manifest() {
  static const std::string text =
      format_manifest({RecordFormat(Layout::full(2, 1, 8, KvDtype::f32, 4), 4096), 20'000, 7});
  return text;
}

void parse(std::string_view text) {
  const auto manifest = parse_manifest(text);
  if (!manifest) return;
  require(format_manifest(*manifest) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 3, size - 3);
  if (data[0] % 2 == 0) {
    parse(input);
    return 0;
  }
  std::string text = good_manifest();
  const std::size_t at = (data[1] * std::size_t{256} + data[2]) % (text.size() + 1);
  text.replace(at, input.size(), input);
  parse(text);
  return 0;
}
