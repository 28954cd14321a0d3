// The fields of a config.json, read with bounds.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>

#include <fmt/format.h>

#include "base/json.h"

namespace billow::advise {

// Reads fields with bounds and remembers the first error.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}
  const Json& json() const { return json_; }

  // The first of the names that holds a number; `fallback` if none does. Out of bounds is an error,
  // never clamped.
  std::int64_t number(std::initializer_list<const char*> names,
                      std::int64_t fallback,
                      std::int64_t min,
                      std::int64_t max) {
    for (auto name : names) {
      const Json* field = json_.find(name);
      if (!field || field->is_null())
        continue;
      double value = field->is_number() ? field->double_or(0) : std::nan("");
      if (!std::isfinite(value) || value != std::floor(value) || value < static_cast<double>(min) ||
          value > static_cast<double>(max)) {
        if (error_.empty())
          error_ = fmt::format("{} is {}, not a whole number from {} to {}", name,
                               field->dump().substr(0, 40), min, max);
        return fallback;
      }
      return static_cast<std::int64_t>(value);
    }
    return fallback;
  }
  std::int64_t required(std::initializer_list<const char*> names,
                        std::int64_t min,
                        std::int64_t max) {
    auto value = number(names, -1, min, max);
    if (value < 0 && error_.empty())
      error_ = fmt::format("the field {} is missing", *names.begin());
    return value;
  }
  bool flag(const char* name) const { return json_[name].bool_or(false); }
  std::string text(const char* name) const { return std::string(json_[name].str_or("")); }
  void wrong(std::string what) {
    if (error_.empty())
      error_ = std::move(what);
  }
  const std::string& error() const { return error_; }

 private:
  const Json& json_;
  std::string error_;
};

// The dimensions that every kind of layer needs.
struct Dims {
  std::int64_t layers, hidden, heads, kv_heads, head_dim, inner, vocabulary;
};

}  // namespace billow::advise
