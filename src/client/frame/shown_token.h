// Tokens that people show to a head for the first time, by login or join: read without showing
// them, taken apart, and what to say where the head they are shown to is not the one that made
// them.
#pragma once

#include <string>

#include "base/result.h"

namespace billow::client {

std::string variable(const char* name);  // of the environment; empty where it is not set

// From a terminal without showing it, else the first line.
Result<std::string> secret_from_stdin(const char* what);

// A token may carry, behind a dot, the fingerprint of the authority its head is known by.
struct PinnedToken {
  std::string token, fingerprint;
};
PinnedToken split_pin(const std::string& text);

// What went wrong on the way to a head, said so that it can be put right.
Error explain_connection(Error error, const std::string& url, bool pinned);

}  // namespace billow::client
