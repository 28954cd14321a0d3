// A JSON value: documents cross module borders as Json, and the parser (Boost.JSON) stays in
// json.cpp. Objects keep the order of their members, so output is deterministic. Numbers stay
// integers or floating-point numbers as they were written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace billow {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() : value_(nullptr) {}
  Json(std::nullptr_t) : value_(nullptr) {}
  Json(bool b) : value_(b) {}
  template <class N>
  requires(std::is_integral_v<N> && !std::is_same_v<N, bool> && std::is_signed_v<N>) Json(N n)
      : value_(static_cast<std::int64_t>(n)) {}
  template <class N>
  requires(std::is_integral_v<N> && !std::is_same_v<N, bool> && std::is_unsigned_v<N>) Json(N n) {
    if (static_cast<std::uint64_t>(n) <= static_cast<std::uint64_t>(INT64_MAX))
      value_ = static_cast<std::int64_t>(n);
    else
      value_ = static_cast<std::uint64_t>(n);
  }
  Json(double d) : value_(d) {}
  Json(std::string s) : value_(std::move(s)) {}
  Json(std::string_view s) : value_(std::string(s)) {}
  Json(const char* s) : value_(std::string(s)) {}
  Json(Array a) : value_(std::move(a)) {}
  Json(Object o) : value_(std::move(o)) {}
  static Json array() { return Json(Array{}); }
  static Json object() { return Json(Object{}); }
  static Json object(std::initializer_list<Member> members);

  // Defined in json.cpp, so that each file that holds a Json does not compile them again.
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_integer() const {
    return std::holds_alternative<std::int64_t>(value_) ||
           std::holds_alternative<std::uint64_t>(value_);
  }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  const char* kind() const;  // "null", "boolean", "number", "string", "array", "object"

  // Lenient readers: they return the fallback if the value is of another kind.
  bool bool_or(bool fallback) const { return is_bool() ? std::get<bool>(value_) : fallback; }
  std::int64_t int_or(std::int64_t fallback) const;  // accepts a double without fraction
  std::uint64_t uint_or(std::uint64_t fallback) const;
  double double_or(double fallback) const;
  std::string_view str_or(std::string_view fallback) const {
    return is_string() ? std::string_view(std::get<std::string>(value_)) : fallback;
  }

  const Array& items() const;     // empty if this is not an array
  const Object& members() const;  // empty if this is not an object
  Array& as_array() { return std::get<Array>(value_); }
  Object& as_object() { return std::get<Object>(value_); }
  const std::string& as_string() const { return std::get<std::string>(value_); }

  // The member of that name, or null. `at` follows a path of names: at("job", "spec", "name").
  const Json& operator[](std::string_view key) const;
  const Json* find(std::string_view key) const;
  template <class... Keys>
  const Json& at(std::string_view key, Keys... rest) const {
    if constexpr (sizeof...(rest) == 0)
      return (*this)[key];
    else
      return (*this)[key].at(rest...);
  }
  std::size_t size() const { return is_array() ? items().size() : members().size(); }
  void set(std::string_view key, Json value);  // replaces or appends; turns null into an object
  void push(Json value);                       // turns null into an array

  bool operator==(const Json& other) const;

  std::string dump() const;         // compact, deterministic
  std::string dump_pretty() const;  // two spaces, for people
  void dump_to(std::string& out) const;

 private:
  std::
      variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object>
          value_;
};

// Strict RFC 8259: one value, no trailing text, valid UTF-8, depth ≤ 64; of duplicate names the
// last wins. An error names the line and column.
Result<Json> parse_json(std::string_view text);

void append_json_string(std::string& out, std::string_view text);

}  // namespace billow
