// What the tests of the golden files share: reading them, and comparing a document of today with
// the one that 0.1 wrote.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "core/wire/codec.h"

namespace billow::golden_test {

inline const std::string golden = BILLOW_GOLDEN "/0.1/";

inline std::vector<Json> lines_of(const std::string& name) {
  std::ifstream in(golden + name);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) {
    auto json = parse_json(line);
    EXPECT_TRUE(json) << name << ": " << line;
    if (json)
      lines.push_back(std::move(*json));
  }
  EXPECT_FALSE(lines.empty()) << name << " is missing or empty";
  return lines;
}

// The first place where today's document does not say what the old one said; empty if it says all
// of it. Fields that were added since are ignored.
inline std::string missing_from(const Json& today, const Json& old, const std::string& path) {
  if (old.is_object()) {
    for (const auto& [name, value] : old.members()) {
      const Json* member = today.find(name);
      const bool nothing = value.is_object() && value.members().empty();
      if (!member && nothing)
        continue;
      if (!member)
        return path + "." + name + " is gone; it was " + value.dump();
      if (std::string found = missing_from(*member, value, path + "." + name); !found.empty())
        return found;
    }
    return "";
  }
  if (old.is_array() && today.is_array() && today.size() == old.size()) {
    for (std::size_t i = 0; i < old.size(); ++i)
      if (std::string found =
              missing_from(today.items()[i], old.items()[i], path + "[" + std::to_string(i) + "]");
          !found.empty())
        return found;
    return "";
  }
  return today.dump() == old.dump() ? "" : path + " is " + today.dump() + "; it was " + old.dump();
}

template <class T>
Json whole(const T& value) {
  auto json = parse_json(wire::to_json_text(value, wire::Omit::nothing));
  EXPECT_TRUE(json);
  return json ? std::move(*json) : Json();
}

// A text file of 0.1.
inline std::string text_of(const std::string& name) {
  const auto text = read_file(golden + name, 1 << 20);
  EXPECT_TRUE(text) << text.error().message;
  return text ? *text : "";
}

}  // namespace billow::golden_test
