// Access tokens of providers with OAuth 2: who we are, the token that says so, and a cache that
// replaces it before it expires.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/json.h"
#include "base/sync.h"
#include "net/http/http.h"

namespace billow::pool {

struct Login {
  std::string token;  // secret
  WallTime expires_at;
  std::string identity;  // "billow@my-project.iam.gserviceaccount.com"
  std::string account;   // project or subscription that the credentials name; may be empty
  std::string endpoint;  // that gave the token
  std::string source;    // where they were found: "GOOGLE_APPLICATION_CREDENTIALS"
};

// Thread-safe. The credentials are read anew for each token, so replaced files count without a
// restart. If a new token cannot be had, the old one is used until it expires.
class LoginCache {
 public:
  using Fetch = std::function<Result<Login>()>;
  LoginCache(Fetch fetch, const Clock& clock);
  Result<Login> get();
  // The provider refused this token: the next call fetches another.
  void forget(const std::string& token);

 private:
  Fetch fetch_;
  const Clock& clock_;
  Sync<Login> last_;
};

// Reads a token endpoint's answer: {"access_token": …, "expires_in": 3599}. `from` names the
// endpoint in errors. Code::unavailable: try again; Code::unauthorized: the credentials are wrong.
Result<Login> read_token(const net::Response& response, std::string_view from, WallTime now);

// The number in a member that some servers write as a string.
std::int64_t number_of(const Json& value, std::int64_t fallback);

}  // namespace billow::pool
