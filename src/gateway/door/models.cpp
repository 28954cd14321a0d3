// One address for all models: /v1/models, /v1/chat/completions and the other paths of
// OpenAI-compatible APIs. The request's "model" is the name of an endpoint, or of a route to
// several; the endpoint gets the request as it came.
#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "gateway/gateway.h"
#include "gateway/pure/model_name.h"

namespace billow::gateway {
namespace {

// The model can stand behind the messages, so the whole body is read first.
constexpr std::size_t body_bytes_max = 8 << 20;

Json model_document(const std::string& name, WallTime created) {
  return Json::object({{"id", name},
                       {"object", "model"},
                       {"created", created.ns / seconds(1).ns},
                       {"owned_by", "billow"}});
}

}  // namespace

// When the model was made: its route, or the endpoint's revision in force.
WallTime Gateway::model_made_at(const std::string& name) const {
  if (const ModelRoute* route = routes_.find(name))
    return route->made_at;
  const auto found = endpoints_.find(name);
  return found == endpoints_.end() ? WallTime{} : found->second->row().deployed_at;
}

// The endpoints that admit the caller, and the routes to them, by name.
std::vector<std::string> Gateway::models_for(Front& front) const {
  std::vector<std::string> names;
  (void)offered_by(front);
  const Ticket before = front.ticket;
  for (const auto& [name, endpoint] : endpoints_) {
    if (cannot_open(front, *endpoint))
      continue;
    if (!check_access(front, *endpoint, secret_, peer_key_for(front)))
      names.push_back(name);
    front.ticket = before;
  }
  std::sort(names.begin(), names.end());
  const auto admitted = [open = names](const std::string& endpoint) {
    return std::binary_search(open.begin(), open.end(), endpoint);
  };
  std::vector<std::string> closed;  // endpoints whose name leads elsewhere
  routes_.each([&](const ModelRoute& route) {
    const bool opens = std::ranges::any_of(route.to, admitted, &ModelTarget::endpoint) ||
                       std::ranges::any_of(route.fallbacks, admitted);
    if (opens && !admitted(route.name))
      names.push_back(route.name);
    if (!opens && admitted(route.name))
      closed.push_back(route.name);
  });
  for (const std::string& name : closed)
    std::erase(names, name);
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

net::Response no_model(const std::string& model) {
  return api_error(
      404, "model_not_found",
      fmt::format("the model \"{}\" does not exist, or this key has no access to it; GET "
                  "/v1/models lists the models of this key",
                  model));
}

}  // namespace

void Gateway::front_door(const std::shared_ptr<Front>& front) {
  if (refuse_ignorant(front, true))
    return;
  const std::string_view path = front->path();
  const bool looks = front->head().method == "GET" || front->head().method == "HEAD";
  if (front->head().method == "OPTIONS") {
    for (const auto& [name, endpoint] : endpoints_)
      if (auto answer = cors_preflight(*front, endpoint->policy()); answer && answer->status == 204)
        return refuse(front, std::move(*answer));
    // A browser sends no key with this question, so a refusal must not ask for one.
    const auto& headers = front->head().headers;
    if (const auto origin = headers.get("Origin");
        !origin.empty() && headers.has("Access-Control-Request-Method"))
      return refuse(front,
                    net::problem(403, fmt::format("calls from pages of {} are not allowed", origin),
                                 fmt::format("deploy the endpoint with --cors {}", origin),
                                 front->request_id()));
  }
  const std::vector<std::string> names = models_for(*front);
  if (names.empty())
    return refuse(
        front,
        api_error(401, "invalid_api_key",
                  fmt::format(
                      "{}; the owner of an endpoint creates keys with: billow endpoint-key NAME",
                      offered_by(*front).key.empty() ? "no key was sent (Authorization: Bearer KEY)"
                                                     : "this key gives access to no endpoint")));
  if (looks && path == "/v1/models") {
    Json list = Json::array();
    for (const std::string& name : names)
      list.push(model_document(name, model_made_at(name)));
    return respond(front,
                   net::Response::json(
                       200, Json::object({{"object", "list"}, {"data", std::move(list)}}).dump()));
  }
  if (looks && path.starts_with("/v1/models/")) {
    const std::string name =
        net::percent_decode(path.substr(std::string_view("/v1/models/").size())).value_or("");
    if (!std::binary_search(names.begin(), names.end(), name))
      return refuse(
          front,
          api_error(404, "model_not_found",
                    fmt::format("the model \"{}\" does not exist, or this key has no access to it",
                                name)));
    return respond(front,
                   net::Response::json(200, model_document(name, model_made_at(name)).dump()));
  }
  if (front->head().method != "POST")
    return refuse(
        front, api_error(404, "not_found",
                         "the request names no model; use POST with a \"model\", or /f/NAME/v1/…"));
  // Bodies of all requests together are bounded: strangers can send them where an endpoint is open.
  front->ticket.shares_memory = true;
  front->ticket.strip_credentials = true;
  front->read_body(body_bytes_max, [this, front](std::string body) {
    const auto model = model_name(body);
    const Decision decision(*this);
    if (!model)
      return refuse(front, api_error(400, "model_missing",
                                     "the body must be a JSON object with the text \"model\""));
    front->keep_body(std::move(body));
    serve_model(front, *model);
  });
}

void Gateway::serve_model(const std::shared_ptr<Front>& front, const std::string& model) {
  if (const ModelRoute* route = routes_.find(model))
    return serve_route(front, *route);
  const auto endpoint = find(model);
  if (!endpoint || check_access(*front, *endpoint, secret_, peer_key_for(*front)))
    return refuse(front, no_model(model));
  serve(front, endpoint, 0);
}

// A key of one of the route's endpoints opens all of them, because the user who set the route may
// change them all. A caller without a key gets only those that admit it.
void Gateway::serve_route(const std::shared_ptr<Front>& front, const ModelRoute& route) {
  std::vector<std::string> all = route.fallbacks;
  for (const ModelTarget& target : route.to)
    all.push_back(target.endpoint);
  const Ticket before = front->ticket;
  std::optional<Ticket> admitted;
  std::vector<std::string> open;
  for (const std::string& name : all) {
    const auto endpoint = find(name);
    front->ticket = before;
    if (!endpoint || check_access(*front, *endpoint, secret_, peer_key_for(*front)))
      continue;
    open.push_back(name);
    const bool by_key = !front->ticket.key.empty();
    if (admitted && (!by_key || !admitted->key.empty()))
      continue;
    admitted = front->ticket;
    if (by_key)
      admitted->key_endpoint = name;
  }
  front->ticket = before;
  if (!admitted)
    return refuse(front, no_model(route.name));
  const bool by_key = !admitted->key.empty() || admitted->from_peer;
  std::vector<std::string> order = routes_.order(route.name, [&](const std::string& name) {
    return by_key ? find(name) != nullptr : std::ranges::find(open, name) != open.end();
  });
  front->ticket = std::move(*admitted);
  const auto first = find(order.front());
  front->ticket.others.assign(order.begin() + 1, order.end());
  serve(front, first, 0);
}

// ---- endpoints that cannot serve

net::Response Gateway::nobody_left(const Front& front) {
  auto answer = net::problem(503, "no endpoint of the model can serve the request now",
                             "retry after the time in Retry-After", front.request_id());
  answer.headers.add("Retry-After", "1");
  return answer;
}

void Gateway::turn_away(const std::shared_ptr<Front>& front, net::Response response) {
  if (front->ticket.others.empty())
    return refuse(front, std::move(response));
  leave_endpoint(*front, response.status >= 500);
  if (!next_endpoint(front))
    refuse(front, std::move(response));
}

// The endpoint's part in the request is over; the request goes on.
void Gateway::leave_endpoint(Front& front, bool failed) {
  Ticket& ticket = front.ticket;
  const auto endpoint = std::static_pointer_cast<LiveEndpoint>(ticket.endpoint);
  if (failed)
    ++endpoint->totals.failed;
  ticket.failure_counted = failed;
  const auto upstream = std::exchange(ticket.upstream, nullptr);
  ticket.tries = ticket.lost = 0;
  ticket.first_byte = {};
  ticket.wish = {};
  ticket.mirrored = false;
  ticket.set_cookie.clear();
  if (!upstream)
    return;
  if (Peers::is_peer(upstream->key))
    return endpoint->router.lent(false);
  endpoint->router.finished(upstream->key, loop_.steady(), ticket.id);
  endpoint->served(upstream->key, failed, {}, loop_.steady());
}

bool Gateway::next_endpoint(const std::shared_ptr<Front>& front) {
  auto& others = front->ticket.others;
  while (!others.empty()) {
    const auto endpoint = find(others.front());
    others.erase(others.begin());
    if (!endpoint)
      continue;
    serve(front, endpoint, 0);
    return true;
  }
  return false;
}

// Its replica has refused the request: 429 says that it is busy, not that it is broken.
void Gateway::turned_down(const std::shared_ptr<Front>& front, int status) {
  const Decision decision(*this);
  const auto endpoint = std::static_pointer_cast<LiveEndpoint>(front->ticket.endpoint);
  if (const auto& upstream = front->ticket.upstream;
      upstream && status != 429 && !Peers::is_peer(upstream->key))
    endpoint->answered(upstream->key, Answered::error, loop_.steady());
  leave_endpoint(*front, status != 429);
  try_next_endpoint(front);
}

// Posted: this runs inside the callback of the replica's connection.
void Gateway::try_next_endpoint(const std::shared_ptr<Front>& front) {
  front->proxy().loop().post([this, front] {
    if (closing_ || !front->active())
      return;
    const Decision decision(*this);
    if (!next_endpoint(front))
      refuse(front, nobody_left(*front));
  });
}

// A request with other endpoints does not wait for one that gets no capacity.
void Gateway::leave_waiting_endpoint(const std::shared_ptr<LiveEndpoint>& endpoint,
                                     SteadyTime now) {
  constexpr Duration patience = seconds(2);
  if (endpoint->router.held() == 0 || endpoint->awake() || !endpoint->waits_for_capacity() ||
      now - endpoint->waits_since() < patience)
    return;
  std::vector<RequestId> leaving;
  for (const auto& [id, held] : endpoint->router.queue())
    if (const auto found = held_.find(id);
        found != held_.end() && !found->second->ticket.others.empty())
      leaving.push_back(id);
  for (RequestId id : leaving)
    refuse_held(*endpoint, id, nobody_left(*held_.at(id)));
}

}  // namespace billow::gateway
