// The description of the API: openapi.json, written by hand, with the schemas of a job, which are
// made from the job options (src/client/request/job_schemas.cpp).
#include <fmt/format.h>

#include "api/api.h"
#include "api/call.h"
#include "base/json.h"

std::string_view billow_embedded_openapi();
std::string_view billow_embedded_job_schemas();

namespace billow::api {

Result<Json> openapi_document() {
  Json document = BILLOW_TRY(parse_json(billow_embedded_openapi()));
  const Json jobs = BILLOW_TRY(parse_json(billow_embedded_job_schemas()));
  Json components = document["components"];
  Json schemas = components["schemas"];
  for (const auto& [name, schema] : jobs.members())
    schemas.set(name, schema);
  components.set("schemas", std::move(schemas));
  document.set("components", std::move(components));
  return document;
}

void admin::openapi(CallPtr call) {
  static const Result<Json> document = openapi_document();
  if (!document)
    return call->fail(document.error());
  static const std::string text = document->dump();
  call->reply_validated(net::Response::json(200, text));
}

// What a page needs to know of the API: which routes this head has.
void admin::routes(CallPtr call) {
  static const std::string text = [] {
    Json list = Json::array();
    for (const RouteInfo& route : Api::routes())
      if (std::string_view(route.pattern).starts_with("/v1/"))
        list.push(fmt::format("{} {}", net::method_name(route.method), route.pattern));
    return Json::object({{"routes", std::move(list)}}).dump();
  }();
  call->reply_validated(net::Response::json(200, text));
}

}  // namespace billow::api
