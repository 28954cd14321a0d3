// A secret from a prompt, a pipe or a file: never from the command line, where others can see it
// and shells keep it.
#pragma once

#include <string>

#include "base/result.h"

namespace billow::client {

// From the file if one is named; else typed without echo, or read from a pipe.
Result<std::string> secret_input(const std::string& file, const std::string& what);

}  // namespace billow::client
