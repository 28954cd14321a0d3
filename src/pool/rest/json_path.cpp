#include "pool/rest/json_path.h"

#include <fmt/format.h>

#include "base/text.h"

namespace billow::pool::rest {
namespace {

constexpr std::size_t found_max = 200'000;  // values of one path in one answer
constexpr std::size_t segments_max = 16;

const Json null_value;

void follow(const Json& at,
            const std::vector<std::string>& segments,
            std::size_t depth,
            std::vector<const Json*>& found) {
  if (found.size() >= found_max)
    return;
  if (depth == segments.size()) {
    found.push_back(&at);
    return;
  }
  const std::string& segment = segments[depth];
  if (segment == "*") {
    for (const Json& item : at.items())
      follow(item, segments, depth + 1, found);
    for (const auto& [name, value] : at.members())
      follow(value, segments, depth + 1, found);
    return;
  }
  if (at.is_array()) {
    const auto index = parse_int(segment, 0, INT32_MAX);
    if (index && static_cast<std::size_t>(*index) < at.items().size())
      follow(at.items()[static_cast<std::size_t>(*index)], segments, depth + 1, found);
    return;
  }
  if (const Json* member = at.find(segment))
    follow(*member, segments, depth + 1, found);
}

// "a~1b" → "a/b".
Result<std::string> unescaped(std::string_view segment) {
  std::string out;
  for (std::size_t i = 0; i < segment.size(); ++i) {
    if (segment[i] != '~') {
      out += segment[i];
      continue;
    }
    if (i + 1 >= segment.size() || (segment[i + 1] != '0' && segment[i + 1] != '1'))
      return fail(Code::invalid, "a ~ in a JSON pointer is written ~0");
    out += segment[++i] == '0' ? '~' : '/';
  }
  return out;
}

}  // namespace

Result<JsonPath> JsonPath::parse(std::string_view text) {
  JsonPath path;
  if (text.empty())
    return path;
  if (text.front() != '/')
    return fail(Code::invalid,
                fmt::format("\"{}\" is not a JSON pointer: it must begin with /", text));
  for (const std::string& segment : split(text.substr(1), '/'))
    path.segments_.push_back(BILLOW_TRY(unescaped(segment)));
  if (path.segments_.size() > segments_max)
    return fail(Code::invalid, fmt::format("a JSON pointer has at most {} parts", segments_max));
  return path;
}

const Json& JsonPath::first(const Json& document) const {
  std::vector<const Json*> found;
  follow(document, segments_, 0, found);
  return found.empty() ? null_value : *found.front();
}

std::vector<const Json*> JsonPath::all(const Json& document) const {
  std::vector<const Json*> found;
  follow(document, segments_, 0, found);
  return found;
}

bool JsonPath::has_list(const Json& document) const {
  const Json* at = &document;
  for (const std::string& segment : segments_) {
    if (segment == "*")
      return at->is_array() || at->is_object() || (at->is_null() && at != &document);
    at = at->is_object() ? at->find(segment) : nullptr;
    if (!at)
      return false;
  }
  return true;
}

std::string scalar_text(const Json& value) {
  if (value.is_string())
    return value.as_string();
  return value.is_bool() || value.is_number() ? value.dump() : std::string();
}

}  // namespace billow::pool::rest
