// A walk over the members of a JSON object without building its values: bodies of requests are
// large, and one or two members of them are needed.
#pragma once

#include <string_view>

namespace billow::gateway {

// A position in a JSON text. Every function returns false at its end or where it is no JSON.
struct JsonCursor {
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

// Calls `fn(key, value)` for each member of an object, both as they are written (a key with its
// quotes). False: the text is no JSON object.
template <class Fn>
bool each_member(std::string_view text, Fn&& fn) {
  JsonCursor cursor{text};
  if (!cursor.take('{'))
    return false;
  if (cursor.take('}'))
    return true;
  while (true) {
    std::string_view key;
    if (!cursor.string(key) || !cursor.take(':'))
      return false;
    cursor.skip_space();
    const std::size_t start = cursor.at;
    if (!cursor.value())
      return false;
    fn(key, text.substr(start, cursor.at - start));
    if (cursor.take('}'))
      return true;
    if (!cursor.take(','))
      return false;
  }
}

}  // namespace billow::gateway
