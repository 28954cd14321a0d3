// YAML text as a Json value, for kubeconfig files, and back, for manifests. The parser (libyaml)
// stays in yaml.cpp.
#pragma once

#include <string_view>

#include "base/json.h"

namespace billow::pool {

// The first document. Plain true, false, null and decimal integers get their types; every other
// scalar is a string. Aliases are expanded within limits. An error names the line and column.
Result<Json> parse_yaml(std::string_view text);

// In block style, for people. Strings are quoted where YAML could read something else.
std::string to_yaml(const Json& value);

}  // namespace billow::pool
