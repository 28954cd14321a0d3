#include "core/wire/codec.h"

#include <fmt/format.h>

#include "base/text.h"

namespace billow::wire {

void JsonWriter::write_integer(std::string& out, std::int64_t value) {
  fmt::format_to(std::back_inserter(out), "{}", value);
}
void JsonWriter::write_integer(std::string& out, std::uint64_t value) {
  fmt::format_to(std::back_inserter(out), "{}", value);
}

std::string JsonPath::text() const {
  std::string above = up ? up->text() : "";
  if (index >= 0)
    return above + "[" + std::to_string(index) + "]";
  if (!above.empty() && !name.empty())
    above += '.';
  return above + std::string(name);
}

const Json* JsonReader::find(const char* name) {
  if (strict)
    known.emplace_back(name);
  if (error)
    return nullptr;
  const Json* member = object.find(name);
  return member && !member->is_null() ? member : nullptr;
}

void JsonReader::read_bool(const Json& json, bool& value, const JsonPath& where) {
  if (json.is_bool())
    value = json.bool_or(false);
  else
    wrong(where, "true or false", json);
}

void JsonReader::read_text(const Json& json, std::string& value, const JsonPath& where) {
  if (json.is_string())
    value = json.as_string();
  else
    wrong(where, "a string", json);
}

void JsonReader::wrong(const JsonPath& where, const std::string& wanted, const Json& got) {
  if (error)
    return;
  std::string shown = got.dump();
  if (shown.size() > 60)
    shown = shown.substr(0, 57) + "...";
  const std::string place = where.text();
  error = Error{Code::invalid,
                fmt::format("{} must be {}, not {} ({})", place.empty() ? "the document" : place,
                            wanted, shown, got.kind()),
                ""};
}

bool JsonReader::integer_in_range(const Json& json,
                                  std::int64_t min,
                                  std::uint64_t max,
                                  const JsonPath& where) {
  const bool negative = json.int_or(0) < 0;
  if (!json.is_number() || (json.int_or(-1) == -1 && json.int_or(-2) == -2 &&
                            json.uint_or(0) == 0 && json.uint_or(1) == 1)) {
    wrong(where, "a whole number", json);
    return false;
  }
  if ((negative && json.int_or(0) < min) || (!negative && json.uint_or(0) > max)) {
    wrong(where, fmt::format("between {} and {}", min, max), json);
    return false;
  }
  return true;
}

void JsonReader::finish() {
  if (!strict || error)
    return;
  for (const auto& [name, value] : object.members()) {
    if (std::find(known.begin(), known.end(), name) != known.end())
      continue;
    const std::string near = nearest(name, known);
    const std::string shown = JsonPath{path, name}.text();
    error = Error{Code::invalid, fmt::format("unknown field \"{}\"", shown),
                  near.empty() ? "" : fmt::format("did you mean \"{}\"?", near)};
    return;
  }
}

}  // namespace billow::wire
