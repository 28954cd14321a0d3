#include "base/json.h"

#include <fmt/format.h>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/append_format.h"
#include "base/platform.h"
#include "base/text.h"

namespace billow {
namespace {

const Json null_json;
const Json::Array no_items;
const Json::Object no_members;
constexpr std::size_t depth_max = 64;
constexpr std::size_t small_object = 64;  // members

// Receives the parser's events and builds the value on stacks: the values and names of an object
// or array lie at their ends, and become members or items, of which there are no more than fit,
// when it ends.
struct Builder {
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = 1 << 20;
  static constexpr std::size_t max_string_size = std::size_t(-1);
  using error_code = boost::json::error_code;
  using string_view = boost::json::string_view;

  struct Open {
    std::size_t values, names;  // how many lay there when it began
  };
  std::vector<Json> values;
  std::vector<std::string> names;
  std::vector<Open> open;
  std::string text;

  Builder() {
    values.reserve(32);
    names.reserve(32);
    open.reserve(16);
  }
  Json root() { return values.empty() ? Json() : std::move(values.front()); }
  void add(Json value) { values.push_back(std::move(value)); }

  // Names that differ mostly differ in length or in their first or last letter: then no name needs
  // to be compared with the others.
  static bool may_repeat(const std::string* name, std::size_t count) {
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string& n = name[i];
      const std::size_t letters = n.empty() ? 0
                                            : static_cast<unsigned char>(n.front()) * 5u +
                                                  static_cast<unsigned char>(n.back()) * 11u;
      const std::uint64_t bit = std::uint64_t{1} << ((n.size() * 17 + letters) % 64);
      if (seen & bit)
        return true;
      seen |= bit;
    }
    return false;
  }
  static bool repeats(const Json::Object& members) {
    if (members.size() > small_object)
      return true;
    for (std::size_t i = 1; i < members.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (members[i].first == members[j].first)
          return true;
    return false;
  }
  // Of duplicate names the last wins, in the place of the first.
  static void keep_last(Json::Object& members) {
    std::unordered_map<std::string, std::size_t> places;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto [place, fresh] = places.try_emplace(members[i].first, kept);
      if (!fresh)
        members[place->second].second = std::move(members[i].second);
      else if (kept++ != i)
        members[kept - 1] = std::move(members[i]);
    }
    members.resize(kept);
  }
  void close(Json made, Open began) {
    values.resize(began.values);
    names.resize(began.names);
    values.push_back(std::move(made));
  }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    open.push_back({values.size(), names.size()});
    return true;
  }
  bool on_object_end(std::size_t, error_code&) {
    const Open began = open.back();
    open.pop_back();
    const std::size_t count = values.size() - began.values;
    const bool unsure = may_repeat(names.data() + began.names, count);
    Json made = Json::object();
    Json::Object& members = made.as_object();
    members.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      members.emplace_back(std::move(names[began.names + i]), std::move(values[began.values + i]));
    if (unsure && repeats(members))
      keep_last(members);
    close(std::move(made), began);
    return true;
  }
  bool on_array_begin(error_code&) {
    open.push_back({values.size(), names.size()});
    return true;
  }
  bool on_array_end(std::size_t, error_code&) {
    const Open began = open.back();
    open.pop_back();
    Json made = Json::array();
    made.as_array().assign(
        std::make_move_iterator(values.begin() + static_cast<std::ptrdiff_t>(began.values)),
        std::make_move_iterator(values.end()));
    close(std::move(made), began);
    return true;
  }
  bool on_key_part(string_view s, std::size_t, error_code&) {
    text.append(s.data(), s.size());
    return true;
  }
  bool on_key(string_view s, std::size_t, error_code&) {
    text.append(s.data(), s.size());
    names.push_back(std::move(text));
    text.clear();
    return true;
  }
  bool on_string_part(string_view s, std::size_t, error_code&) {
    text.append(s.data(), s.size());
    return true;
  }
  bool on_string(string_view s, std::size_t, error_code&) {
    text.append(s.data(), s.size());
    add(Json(std::move(text)));
    text.clear();
    return true;
  }
  bool on_number_part(string_view s, error_code&) {
    text.append(s.data(), s.size());
    return true;
  }
  bool on_int64(std::int64_t i, string_view, error_code&) {
    text.clear();
    add(Json(i));
    return true;
  }
  bool on_uint64(std::uint64_t u, string_view, error_code&) {
    text.clear();
    add(Json(u));
    return true;
  }
  bool on_double(double d, string_view s, error_code&) {
    // Boost 1.81 sometimes rounds the last digit wrongly; written numbers must read back equal.
    text.append(s.data(), s.size());
    (void)platform::read_double(text, d);
    text.clear();
    add(Json(d));
    return true;
  }
  bool on_bool(bool b, error_code&) {
    add(Json(b));
    return true;
  }
  bool on_null(error_code&) {
    add(Json());
    return true;
  }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }
};

void append_pretty(const Json& value, std::string& out, int indent) {
  const auto pad = [&](int n) {
    out.append(static_cast<std::size_t>(n) * 2, ' ');
  };
  if (value.is_array() && value.size() > 0) {
    out += "[\n";
    bool first = true;
    for (const Json& item : value.items()) {
      if (!first)
        out += ",\n";
      first = false;
      pad(indent + 1);
      append_pretty(item, out, indent + 1);
    }
    out += '\n';
    pad(indent);
    out += ']';
  } else if (value.is_object() && value.size() > 0) {
    out += "{\n";
    bool first = true;
    for (const auto& [name, member] : value.members()) {
      if (!first)
        out += ",\n";
      first = false;
      pad(indent + 1);
      append_json_string(out, name);
      out += ": ";
      append_pretty(member, out, indent + 1);
    }
    out += '\n';
    pad(indent);
    out += '}';
  } else {
    value.dump_to(out);
  }
}

}  // namespace

const char* Json::kind() const {
  static constexpr const char* names[] = {"null",   "boolean", "number", "number",
                                          "number", "string",  "array",  "object"};
  return names[value_.index()];
}

std::int64_t Json::int_or(std::int64_t fallback) const {
  if (const auto* i = std::get_if<std::int64_t>(&value_))
    return *i;
  if (const auto* d = std::get_if<double>(&value_);
      d && std::trunc(*d) == *d && std::abs(*d) < 9.0e15)
    return static_cast<std::int64_t>(*d);
  return fallback;
}

std::uint64_t Json::uint_or(std::uint64_t fallback) const {
  if (const auto* u = std::get_if<std::uint64_t>(&value_))
    return *u;
  const std::int64_t i = int_or(-1);
  return i >= 0 ? static_cast<std::uint64_t>(i) : fallback;
}

double Json::double_or(double fallback) const {
  if (const auto* d = std::get_if<double>(&value_))
    return *d;
  if (const auto* i = std::get_if<std::int64_t>(&value_))
    return static_cast<double>(*i);
  if (const auto* u = std::get_if<std::uint64_t>(&value_))
    return static_cast<double>(*u);
  return fallback;
}

const Json::Array& Json::items() const {
  return is_array() ? std::get<Array>(value_) : no_items;
}
const Json::Object& Json::members() const {
  return is_object() ? std::get<Object>(value_) : no_members;
}

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : members())
    if (name == key)
      return &value;
  return nullptr;
}

const Json& Json::operator[](std::string_view key) const {
  const Json* found = find(key);
  return found ? *found : null_json;
}

void Json::set(std::string_view key, Json value) {
  if (is_null())
    value_ = Object{};
  for (auto& [name, old] : as_object())
    if (name == key) {
      old = std::move(value);
      return;
    }
  as_object().emplace_back(std::string(key), std::move(value));
}

void Json::push(Json value) {
  if (is_null())
    value_ = Array{};
  as_array().push_back(std::move(value));
}

// The output is always valid JSON, whatever bytes the text contains: other programs read it.
void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t written = 0, at = 0;
  const auto instead = [&](std::size_t bytes, std::string_view other) {
    out += text.substr(written, at - written);
    out += other;
    written = at += bytes;
  };
  while (at < text.size()) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c >= 0x80) {
      if (const std::size_t letter = utf8_letter(text, at))
        at += letter;
      else
        instead(1, "\xef\xbf\xbd");
    } else if (c >= 0x20 && c != '"' && c != '\\') {
      ++at;
    } else {
      switch (c) {
        case '"':
          instead(1, "\\\"");
          break;
        case '\\':
          instead(1, "\\\\");
          break;
        case '\n':
          instead(1, "\\n");
          break;
        case '\r':
          instead(1, "\\r");
          break;
        case '\t':
          instead(1, "\\t");
          break;
        default:
          instead(1, fmt::format("\\u{:04x}", c));
      }
    }
  }
  out += text.substr(written);
  out += '"';
}

Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
bool Json::operator==(const Json& other) const = default;

Json Json::object(std::initializer_list<Member> members) {
  return Json(Object(members));
}

void Json::dump_to(std::string& out) const {
  struct Visitor {
    std::string& out;
    void operator()(std::nullptr_t) { out += "null"; }
    void operator()(bool b) { out += b ? "true" : "false"; }
    void operator()(std::int64_t i) { append_format(out, "{}", i); }
    void operator()(std::uint64_t u) { append_format(out, "{}", u); }
    void operator()(double d) {
      if (!std::isfinite(d)) {
        out += "null";
        return;
      }  // JSON has no infinity
      const std::string text = fmt::format("{}", d);
      out += text;
      if (text.find_first_of(".e") == std::string::npos)
        out += ".0";  // reads back as a double
    }
    void operator()(const std::string& s) { append_json_string(out, s); }
    void operator()(const Array& a) {
      out += '[';
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (i)
          out += ',';
        a[i].dump_to(out);
      }
      out += ']';
    }
    void operator()(const Object& o) {
      out += '{';
      bool first = true;
      for (const auto& [name, value] : o) {
        if (!first)
          out += ',';
        first = false;
        append_json_string(out, name);
        out += ':';
        value.dump_to(out);
      }
      out += '}';
    }
  };
  std::visit(Visitor{out}, value_);
}

std::string Json::dump() const {
  std::string out;
  dump_to(out);
  return out;
}

std::string Json::dump_pretty() const {
  std::string out;
  append_pretty(*this, out, 0);
  return out;
}

Result<Json> parse_json(std::string_view text) {
  boost::json::parse_options options;
  options.max_depth = depth_max;
  boost::json::basic_parser<Builder> parser(options);
  boost::json::error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && used < text.size()) {
    // Trailing white space is allowed; anything else is a second value.
    if (text.find_first_not_of(" \t\r\n", used) != std::string_view::npos)
      ec = boost::json::error::extra_data;
  }
  if (ec) {
    std::size_t line = 1, column = 1;
    for (std::size_t i = 0; i < used && i < text.size(); ++i) {
      if (text[i] == '\n') {
        ++line;
        column = 1;
      } else {
        ++column;
      }
    }
    return fail(Code::invalid, fmt::format("malformed JSON at line {}, column {}: {}", line, column,
                                           ec.message()));
  }
  return parser.handler().root();
}

}  // namespace billow
