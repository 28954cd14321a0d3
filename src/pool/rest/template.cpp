#include "pool/rest/template.h"

#include <fmt/format.h>

#include "base/text.h"
#include "net/http/http.h"

namespace billow::pool::rest {
namespace {

bool valid_placeholder(std::string_view name) {
  if (name.empty() || name.size() > 64)
    return false;
  for (const char c : name)
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_' && c != '.')
      return false;
  return true;
}

const std::string* value_of(const Values& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() || found->second.empty() ? nullptr : &found->second;
}

std::unexpected<Error> missing(const std::string& name) {
  return fail(Code::invalid, fmt::format("the request needs a value for \"{}\"", name),
              fmt::format("set it for the pool: --option {}=VALUE", name));
}

Result<Json> number_field(const std::string& name, const std::string& text) {
  if (const auto whole = parse_int(text, INT64_MIN, INT64_MAX))
    return Json(*whole);
  if (const auto real = parse_double(text))
    return Json(*real);
  return fail(Code::invalid, fmt::format("{} must be a number, not \"{}\"", name, text));
}

}  // namespace

Result<Template::Piece> Template::placeholder(std::string_view inside) {
  Piece piece;
  if (inside.ends_with('?')) {
    piece.optional = true;
    inside.remove_suffix(1);
  }
  const auto colon = inside.find(':');
  piece.name = inside.substr(0, colon);
  if (!valid_placeholder(piece.name))
    return fail(Code::invalid, fmt::format("{{{}}} is not a placeholder", inside),
                "write braces of your own twice: {{ }}");
  if (colon == std::string_view::npos)
    return piece;
  const std::string_view type = inside.substr(colon + 1);
  if (type != "number" && type != "bool")
    return fail(Code::invalid, fmt::format("{{{}}}: \"{}\" is not a type", inside, type),
                "use number or bool");
  piece.type = type == "number" ? Type::number : Type::boolean;
  return piece;
}

Result<Template> Template::parse(std::string_view text) {
  Template out;
  std::string literal;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool twice = i + 1 < text.size() && text[i + 1] == c;
    if ((c == '{' || c == '}') && twice) {
      literal += c;
      ++i;
      continue;
    }
    if (c == '}')
      return fail(Code::invalid, "a } without its {", "write braces of your own twice: }}");
    if (c != '{') {
      literal += c;
      continue;
    }
    const auto end = text.find('}', i);
    if (end == std::string_view::npos)
      return fail(Code::invalid, "{ has no matching }", "write {{ for a literal brace");
    if (!literal.empty())
      out.pieces_.push_back({.literal = std::move(literal)});
    literal.clear();
    out.pieces_.push_back(BILLOW_TRY(placeholder(text.substr(i + 1, end - i - 1))));
    i = end;
  }
  if (!literal.empty())
    out.pieces_.push_back({.literal = std::move(literal)});
  for (const Piece& piece : out.pieces_)
    if (piece.type != Type::text && out.pieces_.size() > 1)
      return fail(Code::invalid,
                  fmt::format("{{{}}} with a type must stand alone in its string", piece.name));
  return out;
}

Result<std::string> Template::text(const Values& values, Escape escape) const {
  std::string out;
  for (const Piece& piece : pieces_) {
    if (piece.name.empty()) {
      out += piece.literal;
      continue;
    }
    const std::string* value = value_of(values, piece.name);
    if (!value && !piece.optional)
      return missing(piece.name);
    if (value)
      out += escape == Escape::url ? net::percent_encode(*value) : *value;
  }
  return out;
}

Result<std::optional<Json>> Template::json(const Values& values) const {
  if (pieces_.size() != 1 || pieces_[0].name.empty()) {
    bool optional_missing = false;
    for (const Piece& piece : pieces_)
      optional_missing = optional_missing ||
                         (!piece.name.empty() && piece.optional && !value_of(values, piece.name));
    if (optional_missing)
      return std::optional<Json>();
    return Json(BILLOW_TRY(text(values)));
  }
  const Piece& only = pieces_[0];
  const std::string* value = value_of(values, only.name);
  if (!value) {
    if (only.optional)
      return std::optional<Json>();
    return missing(only.name);
  }
  switch (only.type) {
    case Type::text:
      return Json(*value);
    case Type::number:
      return BILLOW_TRY(number_field(only.name, *value));
    case Type::boolean:
      return Json(*value == "true");
  }
  return std::optional<Json>();
}

void Template::names(std::set<std::string>& into) const {
  for (const Piece& piece : pieces_)
    if (!piece.name.empty())
      into.insert(piece.name);
}

namespace {

Result<std::optional<Json>> filled(const Json& document, const Values& values) {
  if (document.is_string())
    return BILLOW_TRY(Template::parse(document.as_string())).json(values);
  if (document.is_array()) {
    Json out = Json::array();
    for (const Json& item : document.items())
      if (auto one = BILLOW_TRY(filled(item, values)))
        out.push(std::move(*one));
    if (out.size() == 0 && document.size() > 0)
      return std::optional<Json>();
    return out;
  }
  if (document.is_object()) {
    Json out = Json::object();
    for (const auto& [name, value] : document.members())
      if (auto one = BILLOW_TRY(filled(value, values)))
        out.set(name, std::move(*one));
    if (out.size() == 0 && document.size() > 0)
      return std::optional<Json>();
    return out;
  }
  return document;
}

}  // namespace

Result<Json> fill(const Json& document, const Values& values) {
  auto out = BILLOW_TRY(filled(document, values));
  return out ? std::move(*out) : Json();
}

Status collect_names(const Json& document, std::set<std::string>& into) {
  if (document.is_string()) {
    const Template parsed = BILLOW_TRY(Template::parse(document.as_string()));
    parsed.names(into);
  }
  for (const Json& item : document.items())
    BILLOW_TRY_VOID(collect_names(item, into));
  for (const auto& [name, value] : document.members())
    BILLOW_TRY_VOID(collect_names(value, into));
  return {};
}

}  // namespace billow::pool::rest
