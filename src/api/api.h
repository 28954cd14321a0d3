// The HTTP API: routes, authentication, and the documents they answer with. `Api` is a handler for net::HttpServer; everything it
// knows of the head comes through Host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/host.h"
#include "net/http_server.h"

namespace billow::api {

// Who may call a route. The route itself may ask for more (a job's project).
enum class Need {
  nothing,  // no token
  look,     // any token but a node's
  work,     // a token that may change things: not scope read
  admin,    // of the whole installation
  node,     // an agent's credential
  join,     // a join token
  files,    // whoever may work, and nodes
};

struct RouteInfo {
  net::Method method;
  std::string pattern;  // "/v1/jobs/{id}/stop"
  Need need;
};

class Api {
 public:
  explicit Api(Host& host);
  ~Api();
  void handle(std::shared_ptr<net::Exchange> exchange);
  static std::vector<RouteInfo> routes();  // what the OpenAPI file is held against

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace billow::api
