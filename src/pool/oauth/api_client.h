// Calls to a cloud's JSON API with an access token.
//
// A refused token is replaced once. While the API asks for a pause (429 or Retry-After), no further
// request is sent. The token goes to the API's own server and to no other, whatever links an answer
// contains.
#pragma once

#include <optional>

#include "base/json.h"
#include "pool/oauth/login.h"
#include "pool/oauth/web.h"
#include "pool/pool.h"

namespace billow::pool {

struct ApiCall {
  net::Method method = net::Method::get;
  std::string target;  // path and query, or a whole URL of the same server
  std::optional<Json> body = {};
  net::Headers headers = {};
  Duration timeout = seconds(30);
};

struct ApiAnswer {
  int status = 0;
  Json body;         // null if it was empty or, in an error, not JSON
  std::string text;  // of an error that is not JSON
  net::Headers headers;
  bool ok() const { return status >= 200 && status < 300; }
};

class ApiClient {
 public:
  ApiClient(std::string name, std::string server, Web& web, LoginCache& logins, const Clock& clock)
      : name_(std::move(name)),
        server_(std::move(server)),
        web_(web),
        logins_(logins),
        clock_(clock) {}

  // Code::unavailable: it is unknown whether the request was carried out.
  Result<ApiAnswer> call(const ApiCall& call);

 private:
  Result<ApiAnswer> send(const ApiCall& call, const std::string& url, const Login& login);

  std::string name_;    // "Google Compute Engine"
  std::string server_;  // "https://compute.googleapis.com"
  Web& web_;
  LoginCache& logins_;
  const Clock& clock_;
  Sync<SteadyTime> quiet_until_;
};

// An array with one item.
Json json_list(Json item);

// What an error without a known code means for an order: no answer, or wrong settings.
Refusal refusal_of_error(const Error& error);

}  // namespace billow::pool
