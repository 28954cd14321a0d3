// The HTTP API: routes, authentication, and the documents they answer with. `Api` is a handler for
// net::HttpServer; everything it knows of the head comes through Host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/host.h"
#include "api/rights.h"
#include "base/json.h"
#include "base/result.h"
#include "net/http/http_server.h"

namespace billow::api {

// What a route's body is. JSON that is large is parsed by a worker.
enum class Body { json, octets };

struct RouteInfo {
  net::Method method;
  std::string pattern;  // "/v1/jobs/{id}/stop"
  Need need;
  // One of these, in the project that the call is about or on the installation; none: anyone with
  // such a token, for their own resources.
  control::PermissionSet permissions;
  Adds adds = Adds::nothing;
  Body body = Body::json;
};

class Api {
 public:
  explicit Api(Host& host);
  ~Api();
  // Once, when the head begins to serve: signatures of nodes from before are not accepted.
  void begin(WallTime now);
  void end();  // the head has stopped and still has its state
  // Before the head and its loop go.
  void leave_loop();
  void handle(std::shared_ptr<net::Exchange> exchange);
  // Of a request's head, before its body is read: who sends it, and whether its body may come.
  // Without a valid token it may have few bytes, and only on routes that need none.
  net::Caller identify(const net::Request& head) const;
  Result<net::BodyPlan> body_policy(const net::Request& head) const;
  // The text of /metrics as the user who started the head sees it: everything.
  void with_metrics(std::function<void(Result<std::string>)> fn);
  static std::vector<RouteInfo> routes();  // what the OpenAPI file is held against

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// docs/rights.md: permissions, roles, and what each route needs.
std::string rights_page();

// What /v1/openapi.json answers with.
Result<Json> openapi_document();

}  // namespace billow::api
