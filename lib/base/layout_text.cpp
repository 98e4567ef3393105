// A layout in words, and back; see terrace/layout.hpp.
//
// One layout has one text: what is read is written again and compared, so that a reader need not
// list what could be wrong with a file. Called by: the manifest of a cache directory.
// Thread rule: pure functions.
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "terrace/layout.hpp"

namespace terrace {
namespace {

struct Field {
  const char* name;
  std::uint32_t Group::*value;
};
constexpr std::array<Field, 6> kFields{{{"first_layer", &Group::first_layer},
                                        {"layer_count", &Group::layer_count},
                                        {"kv_heads", &Group::kv_heads},
                                        {"head_dim", &Group::head_dim},
                                        {"window_tokens", &Group::window_tokens},
                                        {"bytes_per_token", &Group::bytes_per_token}}};

constexpr std::array kDtypes{KvDtype::f32, KvDtype::f16, KvDtype::bf16, KvDtype::fp8_e4m3,
                             KvDtype::fp8_e5m2};
constexpr std::array kKinds{GroupKind::full_attention, GroupKind::sliding_window, GroupKind::latent,
                            GroupKind::sidecar, GroupKind::boundary_snapshot};
constexpr std::array kOrders{AtRestOrder::layer_kv_head_token_dim};

// Takes words off the front of a text. Spaces and line ends are alike to it: where they stand, the
// comparison at the end checks.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }

  std::string_view next() {
    const std::size_t end = rest_.find_first_of(" \n");
    const std::string_view word = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    return word;
  }

  bool take(std::string_view expected) {
    Words ahead = *this;
    if (ahead.next() != expected) return false;
    *this = ahead;
    return true;
  }

  bool take_number(std::uint32_t& value) {
    const std::string_view word = next();
    return std::from_chars(word.data(), word.data() + word.size(), value).ec == std::errc();
  }

  template <class Names, class Value>
  bool take_name(const Names& names, Value& value) {
    const std::string_view word = next();
    for (const Value candidate : names) {
      if (word != to_string(candidate)) continue;
      value = candidate;
      return true;
    }
    return false;
  }

 private:
  std::string_view rest_;
};

bool take_group(Words& words, Group& group) {
  if (!words.take("group") || !words.take_name(kKinds, group.kind)) return false;
  for (const Field& field : kFields) {
    if (words.take(field.name) && !words.take_number(group.*field.value)) return false;
  }
  return true;
}

bool take_layout(Words& words, Layout& layout) {
  const bool head = words.take("block_tokens") && words.take_number(layout.block_tokens) &&
                    words.take("dtype") && words.take_name(kDtypes, layout.dtype) &&
                    words.take("order") && words.take_name(kOrders, layout.order);
  if (!head) return false;
  while (!words.at_end()) {
    if (!take_group(words, layout.groups.emplace_back())) return false;
  }
  return true;
}

}  // namespace

const char* to_string(GroupKind kind) noexcept {
  switch (kind) {
    case GroupKind::full_attention:
      return "full_attention";
    case GroupKind::sliding_window:
      return "sliding_window";
    case GroupKind::latent:
      return "latent";
    case GroupKind::sidecar:
      return "sidecar";
    case GroupKind::boundary_snapshot:
      return "boundary_snapshot";
  }
  return "unknown";
}

const char* to_string(AtRestOrder order) noexcept {
  return order == AtRestOrder::layer_kv_head_token_dim ? "layer_kv_head_token_dim" : "unknown";
}

std::string format_layout(const Layout& layout) {
  std::string text = fmt::format("block_tokens {}\ndtype {}\norder {}\n", layout.block_tokens,
                                 to_string(layout.dtype), to_string(layout.order));
  for (const Group& group : layout.groups) {
    text += fmt::format("group {}", to_string(group.kind));
    for (const Field& field : kFields) {
      if (group.*field.value != 0) text += fmt::format(" {} {}", field.name, group.*field.value);
    }
    text += '\n';
  }
  return text;
}

Result<Layout> parse_layout(std::string_view text) {
  Words words(text);
  Layout layout;
  if (!take_layout(words, layout) || format_layout(layout) != text) {
    return fail(Code::invalid_argument,
                "not the text of a layout as this version writes it, word for word");
  }
  if (auto valid = layout.validate(); !valid) return unexpected(valid.error());
  return layout;
}

}  // namespace terrace
