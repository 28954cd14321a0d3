// Where a value is in a JSON answer: a JSON pointer (RFC 6901), in which the segment "*" stands for
// every item of an array or every member's value of an object. "/data/*/name" finds the names of
// all items. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace billow::pool::rest {

class JsonPath {
 public:
  JsonPath() = default;  // the whole document
  static Result<JsonPath> parse(std::string_view text);

  // The first value found; null if there is none.
  const Json& first(const Json& document) const;
  std::vector<const Json*> all(const Json& document) const;
  // Whether the document has the list that a path ending in "*" goes through: an answer without it
  // is not an empty list. A null in its place is one.
  bool has_list(const Json& document) const;
  bool empty() const { return segments_.empty(); }
  bool operator==(const JsonPath&) const = default;

 private:
  std::vector<std::string> segments_;
};

// A scalar as text, as providers compare and as people read it: "running", "312", "2.5", "true".
// Null, arrays and objects are empty.
std::string scalar_text(const Json& value);

}  // namespace billow::pool::rest
