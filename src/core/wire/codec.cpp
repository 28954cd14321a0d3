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

void JsonReader::wrong(const std::string& where, const std::string& wanted, const Json& got) {
  if (error)
    return;
  std::string shown = got.dump();
  if (shown.size() > 60)
    shown = shown.substr(0, 57) + "...";
  error = Error{Code::invalid,
                fmt::format("{} must be {}, not {} ({})", where.empty() ? "the document" : where,
                            wanted, shown, got.kind()),
                ""};
}

bool JsonReader::integer_in_range(const Json& json,
                                  std::int64_t min,
                                  std::uint64_t max,
                                  const std::string& where) {
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
    const std::string shown = path.empty() ? name : path + "." + name;
    error = Error{Code::invalid, fmt::format("unknown field \"{}\"", shown),
                  near.empty() ? "" : fmt::format("did you mean \"{}\"?", near)};
    return;
  }
}

}  // namespace billow::wire
