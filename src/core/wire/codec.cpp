#include "core/wire/codec.h"

#include <fmt/format.h>

#include <cstring>

#include "base/text.h"

namespace billow::wire {

namespace {
// The fast path: most of a snapshot consists of numbers.
template <class I>
void append_integer(std::string& out, I value) {
  const fmt::format_int digits(value);
  out.append(digits.data(), digits.size());
}
}  // namespace

void JsonWriter::write_integer(std::string& out, std::int64_t value) {
  append_integer(out, value);
}
void JsonWriter::write_integer(std::string& out, std::uint64_t value) {
  append_integer(out, value);
}

void JsonWriter::member(const char* name) {
  const std::size_t before = out.size(), bytes = std::strlen(name);
  out.resize_and_overwrite(before + bytes + 4, [&](char* text, std::size_t) {
    char* end = text + before;
    if (!first)
      *end++ = ',';
    *end++ = '"';
    std::memcpy(end, name, bytes);
    end += bytes;
    *end++ = '"';
    *end++ = ':';
    return static_cast<std::size_t>(end - text);
  });
  first = false;
}

void JsonWriter::write_object(
    std::string& out, const void* value, const void* usual, WriteFields write_fields, Omit omit) {
  out += '{';
  JsonWriter inner{out, static_cast<const char*>(value), static_cast<const char*>(usual), omit};
  write_fields(value, inner);
  out += '}';
}

void JsonWriter::write_member(const char* name,
                              const void* value,
                              const void* usual,
                              WriteFields write_fields) {
  const std::size_t before = out.size();
  const bool was_first = first;
  member(name);
  write_object(out, value, usual, write_fields, omit);
  if (omit == Omit::zeros && out.ends_with(":{}")) {
    out.resize(before);
    first = was_first;
  }
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

void JsonReader::wrong(const JsonPath& where, std::string_view wanted, const Json& got) {
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

void JsonReader::wrong_name(const JsonPath& where,
                            const Json& got,
                            std::size_t names,
                            const char* (*name)(std::size_t)) {
  std::string wanted = "one of ";
  for (std::size_t i = 0; i < names; ++i)
    wanted += std::string(i > 0 ? ", " : "") + name(i);
  wrong(where, wanted, got);
}

void JsonReader::read_fields(const Json& json,
                             void* object_at,
                             ReadFields fields,
                             const JsonPath& where) {
  if (!json.is_object())
    return wrong(where, "an object", json);
  JsonReader inner{json, strict, &where, {}, {}};
  fields(inner, object_at);
  inner.finish();
  if (inner.error)
    error = std::move(inner.error);
}

void JsonReader::read_items(
    const Json& json, void* first, std::size_t item_bytes, ReadAt read, const JsonPath& where) {
  char* at = static_cast<char*>(first);
  std::ptrdiff_t index = 0;
  for (const Json& item : json.items()) {
    read(*this, item, at, {&where, "", index++});
    at += item_bytes;
  }
}

std::optional<Error> JsonReader::read_document(const Json& json,
                                               bool strict,
                                               void* at,
                                               ReadAt read) {
  static const Json nothing;
  JsonReader reader{nothing, strict, nullptr, {}, {}};
  read(reader, json, at, {});
  return std::move(reader.error);
}

bool JsonReader::integer_in_range(const Json& json,
                                  std::int64_t min,
                                  std::uint64_t max,
                                  const JsonPath& where) {
  if (const std::int64_t i = json.int_or(-1); i >= 0 && static_cast<std::uint64_t>(i) <= max)
    return true;
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
