// Tokens that a user gives to `billow login` or `billow join`: read without echo, split into token
// and fingerprint, and the error if another head created them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "net/address.h"

namespace billow::client {

std::string variable(const char* name);  // of the environment; empty where it is not set

// From a terminal without showing it, else the first line.
Result<std::string> secret_from_stdin(const char* what);

// A token may carry, behind a dot, the fingerprint of the authority its head is known by.
struct PinnedToken {
  std::string token, fingerprint;
};
PinnedToken split_pin(const std::string& text);

// Refuses to send a token unencrypted to another machine. Addresses of this machine are allowed.
Status check_encrypted(const std::vector<net::Endpoint>& heads, bool insecure);
inline constexpr const char insecure_help[] =
    "send the token unencrypted (http://) although the head is another machine: anyone on the "
    "network path can read it";

// What went wrong on the way to a head, said so that it can be put right.
Error explain_connection(Error error, const std::string& url, bool pinned);

}  // namespace billow::client
