// Header fields of asynchronous calls and of their answers, as the journal keeps them: by name, as
// text.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>

#include "base/crypto.h"
#include "base/text.h"
#include "net/http/http.h"

namespace billow::gateway {

// A field may contain any byte above 0x7f; stored text is UTF-8. No header name contains a
// semicolon.
inline constexpr std::string_view as_base64 = ";base64";

inline void keep_field(std::map<std::string, std::string>& fields,
                       const std::string& name,
                       const std::string& value) {
  std::string key = name;
  std::string text = value;
  if (!valid_utf8(value)) {
    key += as_base64;
    text = base64(value);
  }
  if (!fields.contains(key)) {
    fields[key] = std::move(text);
  } else if (net::equal_nocase(name, "Set-Cookie") || key != name) {
    // Cookies have commas of their own, so each stays a field: "Set-Cookie;2".
    std::size_t number = 2;
    while (fields.contains(fmt::format("{};{}", key, number)))
      ++number;
    fields[fmt::format("{};{}", key, number)] = std::move(text);
  } else {
    fields[key] += ", " + text;
  }
}

template <class Fn>
void kept_field(std::string_view name, std::string_view value, Fn fn) {
  if (const auto last = name.rfind(';'); last != name.npos && name.substr(last) != as_base64)
    name = name.substr(0, last);  // its number, where there are several
  if (!name.ends_with(as_base64))
    return fn(std::string(name), std::string(value));
  std::string bytes;
  if (base64_decode(value, bytes))
    fn(std::string(name.substr(0, name.size() - as_base64.size())), std::move(bytes));
}

}  // namespace billow::gateway
