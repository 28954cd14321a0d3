// HTTP requests to a provider, from any number of threads. Connections are kept for the next
// request to the same server.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/sync.h"
#include "net/http/blocking_client.h"

namespace billow::pool {

struct WebCall {
  net::Method method = net::Method::get;
  std::string url;
  net::Headers headers;
  std::string body;
  Duration connect_timeout = seconds(5);
  Duration timeout = seconds(30);
};

class Web {
 public:
  // Code::unavailable or Code::timed_out if there is no answer: the request may still have been
  // carried out.
  Result<net::Response> send(const WebCall& call);

 private:
  Sync<std::map<std::string, std::vector<net::BlockingClient>>> idle_;  // by server
};

// "a=1&b=2" with both parts percent-encoded.
std::string form(const std::vector<std::pair<std::string, std::string>>& fields);

// Secrets travel by https only; plain http is accepted to this machine itself.
Status check_protected(std::string_view what, const std::string& url);

}  // namespace billow::pool
