// Texts and JSON documents with placeholders, as provider files have them: "{name}" stands for a
// value, "{gpus:number}" and "{spot:bool}" for a JSON number or boolean (alone in their string),
// "{image?}" for a value that may be missing: then the member or item is left out, and so is an
// object or array of which nothing is left. "{{" and "}}" are braces. Pure: the same values always
// give the same bytes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace billow::pool::rest {

using Values = std::map<std::string, std::string, std::less<>>;

class Template {
 public:
  static Result<Template> parse(std::string_view text);

  // The text with its values. Percent-encoded if it becomes a part of a URL.
  enum class Escape { none, url };
  Result<std::string> text(const Values& values, Escape escape = Escape::none) const;
  // Absent: an optional value is missing.
  Result<std::optional<Json>> json(const Values& values) const;
  void names(std::set<std::string>& into) const;

 private:
  enum class Type { text, number, boolean };
  struct Piece {
    std::string literal;
    std::string name;  // empty: a literal
    Type type = Type::text;
    bool optional = false;
  };
  static Result<Piece> placeholder(std::string_view inside);
  std::vector<Piece> pieces_;
};

// The document with the values in place of its placeholders.
Result<Json> fill(const Json& document, const Values& values);
// Which placeholders a document has, or what is wrong with one.
Status collect_names(const Json& document, std::set<std::string>& into);

}  // namespace billow::pool::rest
