// The job options for which `billow describe` has no separate line, as words. They come from the
// head's `options`: every other member of the request that differs from its default.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace billow::client {

struct OptionWords {
  std::string name;   // the option's, with spaces: "stop grace"
  std::string value;  // "30s", "yes", "eu-west or us-east"
  bool operator==(const OptionWords&) const = default;
};
// Members that this program does not know, from a newer head, are shown by their own names.
std::vector<OptionWords> option_words(const Json& options);

}  // namespace billow::client
