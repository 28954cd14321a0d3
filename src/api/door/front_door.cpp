// The front door of the endpoints: names of models, domains, and limits of requests. Whoever leads
// requests to an endpoint must be allowed to change it.
#include <fmt/format.h>

#include "api/call.h"
#include "core/control/decide/front_door.h"

namespace billow::api::door {
namespace {

struct RouteBody {
  std::string name;
  std::vector<ModelTarget> to;
  std::vector<std::string> fallbacks;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("to", s.to);
    v("fallbacks", s.fallbacks);
  }
};
struct DomainBody {
  std::string name, endpoint;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("endpoint", s.endpoint);
  }
};
struct LimitsBody {
  std::uint64_t body_bytes_max = 0, header_bytes_max = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("body_bytes_max", s.body_bytes_max);
    v("header_bytes_max", s.header_bytes_max);
  }
};

std::string project_name(const control::State& state, ProjectId id) {
  const auto found = state.projects.find(id);
  return found == state.projects.end() ? "?" : found->second.name;
}

std::string user_name(const control::State& state, UserId id) {
  const auto found = state.users.find(id);
  return found == state.users.end() ? "?" : found->second.name;
}

Json document_of(const control::State& state, const ModelRoute& route) {
  Json to = Json::array(), fallbacks = Json::array();
  for (const ModelTarget& target : route.to)
    to.push(Json::object({{"endpoint", target.endpoint}, {"weight", target.weight}}));
  for (const std::string& each : route.fallbacks)
    fallbacks.push(each);
  return Json::object({{"name", route.name},
                       {"to", std::move(to)},
                       {"fallbacks", std::move(fallbacks)},
                       {"project", project_name(state, route.project)},
                       {"user", user_name(state, route.user)},
                       {"made_at", format_utc(route.made_at)}});
}

Json document_of(const control::State& state, const Domain& domain) {
  return Json::object({{"name", domain.name},
                       {"endpoint", domain.endpoint},
                       {"project", project_name(state, domain.project)},
                       {"user", user_name(state, domain.user)},
                       {"made_at", format_utc(domain.made_at)}});
}

// Answers when the gateways know it.
void change_door(const CallPtr& call, Command command, std::function<Json()> answer) {
  call->host.execute(
      std::move(command), call->cause(),
      [call, answer = std::move(answer)](const Result<std::vector<Event>>& events) {
        if (!events)
          return call->fail(events.error());
        call->host.when_gateways_know([call, answer] { call->reply(200, answer()); });
      });
}

// Whether the caller may change something that exists: its maker may, and admins.
template <class Made>
Status may_replace(const Call& call, const Made& made, std::string_view what) {
  if (!may_see(call, made.project))
    return billow::fail(Code::conflict,
                        fmt::format("the {} \"{}\" is already in use", what, made.name),
                        "choose another name, or ask an admin");
  return may_act(call, {made.project, made.user}, Permission::endpoints_deploy);
}

}  // namespace

void models(CallPtr call) {
  Json all = Json::array();
  for (const auto& [name, route] : call->host.state().front_door.models)
    if (call->may(Permission::jobs_read, route.project))
      all.push(document_of(call->host.state(), route));
  call->reply_durable(200, Json::object({{"models", std::move(all)}}));
}

void set_model(CallPtr call) {
  auto body = read_body<RouteBody>(call);
  if (!body)
    return;
  const auto& state = call->host.state();
  std::vector<std::string> endpoints = body->fallbacks;
  for (const ModelTarget& target : body->to)
    endpoints.push_back(target.endpoint);
  if (body->to.empty())
    return call->fail({Code::invalid, fmt::format("model {} has no endpoint", body->name),
                       "name at least one: --to ENDPOINT or --to ENDPOINT=WEIGHT"});
  // A route with the name of an endpoint takes over its requests below /v1. An endpoint of another
  // project keeps its name.
  if (const auto named = state.endpoints.find(body->name);
      named != state.endpoints.end() && may_see(*call, named->second.project))
    endpoints.push_back(body->name);
  for (const std::string& name : endpoints)
    if (const Status may = endpoints::may_change(call, name); !may)
      return call->fail(may.error());
  if (const auto before = state.front_door.models.find(body->name);
      before != state.front_door.models.end())
    if (const Status may = may_replace(*call, before->second, "model"); !may)
      return call->fail(may.error());
  SetModelRoute command;
  command.route.name = body->name;
  command.route.user = call->principal.user;
  command.route.to = std::move(body->to);
  command.route.fallbacks = std::move(body->fallbacks);
  with_approval(call, ApprovalAction::expose,
                fmt::format("lead requests for the model {} to other endpoints", body->name),
                [call, command] {
                  change_door(call, command, [call, name = command.route.name] {
                    const auto& made = call->host.state().front_door.models;
                    const auto found = made.find(name);
                    return found == made.end() ? Json::object({{"name", name}})
                                               : document_of(call->host.state(), found->second);
                  });
                });
}

namespace {

// A name that nothing has any more, but that is held for a project the caller sees.
bool free_held_name(const CallPtr& call, const std::string& name) {
  const auto& known = call->host.state().front_door.domains;
  const auto found = known.find(control::held_name(name));
  if (found == known.end() || !may_see(*call, found->second.project))
    return false;
  Domain shown = found->second;
  shown.name = name;
  if (const Status may = may_replace(*call, shown, "name"); !may) {
    call->fail(may.error());
    return true;
  }
  SetDomain command;
  command.domain.name = found->first;
  change_door(call, command, [] { return Json::object({{"ok", true}}); });
  return true;
}

}  // namespace

void remove_model(CallPtr call) {
  std::string name;
  for (const auto& [key, value] : call->request().query)
    if (key == "name")
      name = value;
  const auto& known = call->host.state().front_door.models;
  const auto found = known.find(name);
  if (found == known.end() && free_held_name(call, name))
    return;
  if (found == known.end() || !may_see(*call, found->second.project))
    return call->fail({Code::not_found, fmt::format("there is no model route \"{}\"", name),
                       "see `billow model list`"});
  if (const Status may = may_replace(*call, found->second, "model"); !may)
    return call->fail(may.error());
  SetModelRoute command;
  command.route.name = name;
  change_door(call, command, [] { return Json::object({{"ok", true}}); });
}

void domains(CallPtr call) {
  Json all = Json::array();
  for (const auto& [name, domain] : call->host.state().front_door.domains)
    if (!control::is_held(domain) && call->may(Permission::jobs_read, domain.project))
      all.push(document_of(call->host.state(), domain));
  call->reply_durable(200, Json::object({{"domains", std::move(all)}}));
}

namespace {

// The project's own names can lead to any of its endpoints; admins give it new ones.
Status may_lead(const Call& call, const Domain& domain) {
  const auto& state = call.host.state();
  BILLOW_TRY_VOID(control::check_not_of_gateways(domain.name, call.host.gateway_names()));
  const auto before = state.front_door.domains.find(domain.name);
  if (before != state.front_door.domains.end() &&
      before->second.project == state.endpoints.at(domain.endpoint).project)
    return may_replace(call, before->second, "domain");
  if (!call.may(Permission::projects_change))
    return pass(control::only_admins_add(domain));
  return {};
}

}  // namespace

void set_domain(CallPtr call) {
  auto body = read_body<DomainBody>(call);
  if (!body)
    return;
  if (const Status may = endpoints::may_change(call, body->endpoint); !may)
    return call->fail(may.error());
  SetDomain command;
  command.domain.name = control::domain_name(body->name);
  command.domain.endpoint = body->endpoint;
  command.domain.user = call->principal.user;
  if (const Status may = may_lead(*call, command.domain); !may)
    return call->fail(may.error());
  with_approval(call, ApprovalAction::expose,
                fmt::format("serve endpoint {} at {}", body->endpoint, command.domain.name),
                [call, command] {
                  change_door(call, command, [call, name = command.domain.name] {
                    const auto& made = call->host.state().front_door.domains;
                    const auto found = made.find(name);
                    return found == made.end() ? Json::object({{"name", name}})
                                               : document_of(call->host.state(), found->second);
                  });
                });
}

void remove_domain(CallPtr call) {
  const std::string name = control::domain_name(call->parts[0]);
  const auto& known = call->host.state().front_door.domains;
  const auto found = known.find(name);
  if (found == known.end() || control::is_held(found->second) ||
      !may_see(*call, found->second.project))
    return call->fail({Code::not_found, fmt::format("there is no domain \"{}\"", name),
                       "see `billow domain list`"});
  if (const Status may = may_replace(*call, found->second, "domain"); !may)
    return call->fail(may.error());
  SetDomain command;
  command.domain.name = name;
  change_door(call, command, [] { return Json::object({{"ok", true}}); });
}

namespace {

Json limits_document(const control::State& state, const std::string& endpoint) {
  const auto found = state.front_door.limits.find(endpoint);
  const RequestLimits set =
      found == state.front_door.limits.end() ? RequestLimits{} : found->second;
  return Json::object({{"endpoint", endpoint},
                       {"body_bytes_max", set.body_bytes_max},
                       {"header_bytes_max", set.header_bytes_max}});
}

}  // namespace

void limits(CallPtr call) {
  const auto found = call->host.state().endpoints.find(call->parts[0]);
  if (found == call->host.state().endpoints.end() || !may_see(*call, found->second.project))
    return call->fail({Code::not_found, fmt::format("there is no endpoint \"{}\"", call->parts[0]),
                       "see `billow endpoints`"});
  call->reply_durable(200, limits_document(call->host.state(), call->parts[0]));
}

void set_limits(CallPtr call) {
  auto body = read_body<LimitsBody>(call);
  if (!body)
    return;
  if (const Status may = endpoints::may_change(call, call->parts[0]); !may)
    return call->fail(may.error());
  change_door(call,
              SetRequestLimits{{.endpoint = call->parts[0],
                                .body_bytes_max = body->body_bytes_max,
                                .header_bytes_max = body->header_bytes_max}},
              [call] { return limits_document(call->host.state(), call->parts[0]); });
}

}  // namespace billow::api::door
