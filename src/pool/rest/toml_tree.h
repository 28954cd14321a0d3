// A TOML file as a tree that keeps the line of each value, so that a check can say where a mistake
// is. toml++ stays in toml_tree.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace billow::pool::rest {

struct TomlNode {
  enum class Kind { table, array, text, integer, real, boolean };
  std::string key;  // of a member of a table
  Kind kind = Kind::table;
  int line = 0;
  std::string text;
  std::int64_t integer = 0;
  double real = 0;
  bool boolean = false;
  std::vector<TomlNode> members;  // in the order of their lines
  std::vector<TomlNode> items;

  const TomlNode* find(std::string_view wanted) const;
  Json json() const;
};

Result<TomlNode> parse_toml(std::string_view text, const std::string& shown_as);

}  // namespace billow::pool::rest
