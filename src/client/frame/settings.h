// What a person sets once for every command on this machine: $XDG_CONFIG_HOME/billow/settings.json.
// It holds names and choices, never a secret.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace billow::client {

struct Settings {
  std::vector<std::string> pass_env;  // variables that follow every job although they look secret
  bool operator==(const Settings&) const = default;
};

// Without a file: the defaults. A file that cannot be read is an error, not the defaults.
Result<Settings> read_settings();
Status write_settings(const Settings& settings);

}  // namespace billow::client
