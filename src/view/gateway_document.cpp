#include "view/gateway_document.h"

#include <cmath>

namespace billow::view {
namespace {

Json time_or_null(WallTime at) {
  return at ? Json(format_utc(at)) : Json();
}

Json texts(const std::vector<std::string>& all) {
  Json out = Json::array();
  for (const std::string& each : all)
    out.push(each);
  return out;
}

const char* state_of(const gateway::GatewayRow& row) {
  if (!row.connected)
    return "gone";
  return row.leaving ? "leaving" : "connected";
}

}  // namespace

Json gateway_document(const gateway::GatewayRow& row) {
  return Json::object({{"id", row.id},
                       {"name", row.name},
                       {"own", row.own},
                       {"host", row.host},
                       {"region", row.region},
                       {"addresses", texts(row.addresses)},
                       {"state", state_of(row)},
                       {"steers", row.steers},
                       {"version", row.version},
                       {"loops", row.loops},
                       {"started_at", time_or_null(row.started_at)},
                       {"connected_at", time_or_null(row.connected_at)},
                       {"last_seen_at", time_or_null(row.seen_at)},
                       {"connections", row.connections},
                       {"in_flight", row.in_flight},
                       {"requests", row.requests},
                       {"requests_per_s", std::round(row.requests_per_s * 10) / 10},
                       {"handed_over", row.handed_over}});
}

Json gateway_shares(const std::vector<gateway::GatewayRow>& rows, const std::string& endpoint) {
  Json out = Json::array();
  for (const auto& row : rows) {
    if (!row.connected)
      continue;
    const auto found = row.figures.find(endpoint);
    const gateway::EndpointFigures none;
    const auto& f = found == row.figures.end() ? none : found->second;
    out.push(Json::object({{"id", row.id},
                           {"name", row.name},
                           {"region", row.region},
                           {"address", row.addresses.empty() ? "" : row.addresses.front()},
                           {"state", state_of(row)},
                           {"ready", f.ready},
                           {"in_flight", f.in_flight},
                           {"requests", f.requests}}));
  }
  return out;
}

}  // namespace billow::view
