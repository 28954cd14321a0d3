// Signing in to a head through its identity provider: in a browser on this machine, with a code on
// another device, or with the ID token of a CI job.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "net/http/blocking_client.h"

namespace billow::client {

struct SignInWish {
  std::string provider;  // empty: the only one
  bool device = false;
  bool workload = false;
  std::string id_token_file;  // of a CI job; empty: as the CI system gives it
  bool no_browser = false;    // only print the address
};
// Whether the head has a provider at which people sign in.
bool offers_sign_in(net::BlockingClient& head);
// The head's answer: the token and the user.
Result<Json> sign_in(net::BlockingClient& head, const SignInWish& wish);

}  // namespace billow::client
