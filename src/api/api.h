// The HTTP API: routes, authentication, and the documents they answer with. `Api` is a handler for
// net::HttpServer; everything it knows of the head comes through Host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/host.h"
#include "api/rights.h"
#include "net/http/http_server.h"

namespace billow::api {

struct RouteInfo {
  net::Method method;
  std::string pattern;  // "/v1/jobs/{id}/stop"
  Need need;
  Adds adds = Adds::nothing;
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
