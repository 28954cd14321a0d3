#include "gateway/model_name.h"

#include "base/json.h"

namespace billow::gateway {
namespace {

constexpr std::size_t name_bytes_max = 512;

// A position in a JSON text. Every function returns false at its end or where it is no JSON.
struct Cursor {
  std::string_view text;
  std::size_t at = 0;

  void skip_space() {
    while (at < text.size() &&
           (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
      ++at;
  }
  bool is(char c) const { return at < text.size() && text[at] == c; }
  bool take(char c) {
    skip_space();
    if (!is(c))
      return false;
    ++at;
    return true;
  }
  // A string, with its quotes.
  bool string(std::string_view& quoted) {
    skip_space();
    const std::size_t start = at;
    if (!is('"'))
      return false;
    for (++at; at < text.size(); ++at) {
      if (text[at] == '\\')
        ++at;
      else if (text[at] == '"') {
        quoted = text.substr(start, ++at - start);
        return true;
      }
    }
    return false;
  }
  // Any value, without looking at its inside. Strings are skipped as a whole: they may contain
  // brackets.
  bool value() {
    std::size_t depth = 0;
    std::string_view ignored;
    while (true) {
      skip_space();
      if (at >= text.size())
        return false;
      const char c = text[at];
      if (c == '"') {
        if (!string(ignored))
          return false;
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at;
      } else if (c == '}' || c == ']') {
        if (depth == 0)
          return false;
        --depth;
        ++at;
      } else if (c == ',' || c == ':') {
        if (depth == 0)
          return false;
        ++at;
      } else {
        const std::size_t end = text.find_first_of(",:]}\"[{ \t\r\n", at);
        at = end == text.npos ? text.size() : end;
      }
      if (depth == 0)
        return true;
    }
  }
};

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
  Cursor cursor{body};
  std::optional<std::string> found;
  if (!cursor.take('{') || cursor.take('}'))
    return std::nullopt;
  while (true) {
    std::string_view key, value;
    if (!cursor.string(key) || !cursor.take(':'))
      return std::nullopt;
    // A key can be written with escapes too.
    const bool model =
        key == "\"model\"" || (key.find('\\') != key.npos && unquoted(key) == "model");
    cursor.skip_space();
    if (model && cursor.is('"')) {
      if (!cursor.string(value))
        return std::nullopt;
      found = unquoted(value);
    } else {
      if (model)
        found.reset();
      if (!cursor.value())
        return std::nullopt;
    }
    if (cursor.take('}'))
      return found;
    if (!cursor.take(','))
      return std::nullopt;
  }
}

}  // namespace billow::gateway
