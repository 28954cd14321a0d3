#include "gateway/pure/model_name.h"

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

}  // namespace

std::optional<std::string> model_name(std::string_view body) {
  std::optional<std::string> found;
  const bool object = each_member(body, [&](std::string_view key, std::string_view value) {
    // A key can be written with escapes too.
    if (key == "\"model\"" || (key.find('\\') != key.npos && unquoted(key) == "model"))
      found = value.starts_with('"') ? unquoted(value) : std::nullopt;
  });
  return object ? found : std::nullopt;
}

}  // namespace billow::gateway
