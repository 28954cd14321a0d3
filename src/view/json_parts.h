// Small pieces that several documents are made of. For sources of view/ alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"

namespace billow::view {

inline Json time_or_null(WallTime t) {
  return t ? Json(format_utc(t)) : Json();
}

inline Json string_list(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const std::string& s : list)
    out.push(s);
  return out;
}

inline Json string_map(const std::map<std::string, std::string>& map) {
  Json out = Json::object();
  for (const auto& [key, value] : map)
    out.set(key, value);
  return out;
}

}  // namespace billow::view
