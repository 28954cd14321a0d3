#include "gateway/pure/model_name.h"

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "gateway/pure/json_cursor.h"

namespace billow::gateway {
namespace {

constexpr std::size_t name_bytes_max = 512;

// The text that a quoted JSON string stands for.
std::optional<std::string> unquoted(std::string_view quoted) {
  if (quoted.size() > name_bytes_max)
    return std::nullopt;
  const auto parsed = parse_json(quoted);
  if (!parsed || !parsed->is_string())
    return std::nullopt;
  return std::string(parsed->str_or(""));
}

// Whether a quoted string stands for this text, which has no escapes of its own. A body may have
// millions of keys with escapes, so none of them is parsed.
bool stands_for(std::string_view quoted, std::string_view text) {
  constexpr std::size_t longest_escape = 6;
  if (quoted.size() > 2 + longest_escape * text.size())
    return false;
  quoted = quoted.substr(1, quoted.size() - 2);
  for (const char wanted : text) {
    if (quoted.empty())
      return false;
    if (quoted[0] != '\\') {
      if (quoted[0] != wanted)
        return false;
      quoted.remove_prefix(1);
      continue;
    }
    unsigned code = 0;
    const char* end = quoted.data() + std::min(quoted.size(), longest_escape);
    if (quoted.size() < longest_escape || quoted[1] != 'u' ||
        std::from_chars(quoted.data() + 2, end, code, 16).ptr != end ||
        code != static_cast<unsigned char>(wanted))
      return false;
    quoted.remove_prefix(longest_escape);
  }
  return quoted.empty();
}

}  // namespace

std::optional<std::string> model_name(std::string_view body) {
  std::optional<std::string> found;
  const bool object = each_member(body, [&](std::string_view key, std::string_view value) {
    // A key can be written with escapes too.
    if (stands_for(key, "model"))
      found = value.starts_with('"') ? unquoted(value) : std::nullopt;
  });
  return object ? found : std::nullopt;
}

}  // namespace billow::gateway
