#include "core/control/decide/front_door.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/permissions.h"
#include "core/control/quotas.h"

namespace billow::control {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Names of models are chosen by those who publish them: "gpt-4o-mini", "org/model:7b@v2".
Status check_model_name(std::string_view name) {
  const bool ok = !name.empty() && name.size() <= 128 && is_letter_or_digit(name.front()) &&
                  std::all_of(name.begin(), name.end(), [](char c) {
                    return is_letter_or_digit(c) ||
                           std::string_view("._-/:@+").find(c) != std::string_view::npos;
                  });
  if (ok)
    return {};
  return fail(Code::invalid, fmt::format("\"{}\" is not a valid model name", name),
              "use 1 to 128 letters, digits and ._-/:@+, starting with a letter or digit");
}

bool is_label(std::string_view label) {
  return !label.empty() && label.size() <= 63 && label.front() != '-' && label.back() != '-' &&
         std::all_of(label.begin(), label.end(),
                     [](char c) { return is_letter_or_digit(c) || c == '-'; });
}

Status check_domain_name(std::string_view name) {
  bool ok = !name.empty() && name.size() <= 253 && name.find('.') != name.npos;
  std::string_view last;
  for (const std::string& label : split(std::string(name), '.')) {
    ok = ok && is_label(label);
    last = std::string_view(name).substr(name.rfind('.') + 1);
  }
  // The last label of an IP address is a number; that of a name is none.
  ok = ok && !std::all_of(last.begin(), last.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (ok)
    return {};
  return fail(Code::invalid, fmt::format("\"{}\" is not a valid domain name", name),
              "use a host name such as api.example.org, without a scheme, a port or a path");
}

Status check_targets(const ModelRoute& route) {
  if (route.to.empty())
    return fail(Code::invalid, fmt::format("model {} has no endpoint", route.name),
                "name at least one: --to ENDPOINT or --to ENDPOINT=WEIGHT");
  if (route.to.size() > limits::model_route_targets_max ||
      route.fallbacks.size() > limits::model_route_targets_max)
    return fail(Code::invalid, fmt::format("a model can have at most {} endpoints and as many "
                                           "fallbacks",
                                           limits::model_route_targets_max));
  std::set<std::string> named;
  for (const ModelTarget& target : route.to) {
    if (!named.insert(target.endpoint).second)
      return fail(Code::invalid, fmt::format("endpoint {} is named twice by --to", target.endpoint),
                  "give its weight once");
    if (target.weight < 1 || target.weight > limits::model_weight_max)
      return fail(Code::invalid, fmt::format("the weight of endpoint {} must be between 1 and {}",
                                             target.endpoint, limits::model_weight_max));
  }
  for (const std::string& fallback : route.fallbacks)
    if (!named.insert(fallback).second)
      return fail(Code::invalid, fmt::format("the fallback {} is already named", fallback),
                  "a fallback must be an endpoint that --to and other fallbacks do not name");
  return {};
}

// A project can have this part of all model routes, and of all domains: one project alone must not
// reach the limit of all.
constexpr std::size_t part_of_project = 8;

template <class Map>
Status check_count(const Map& map, std::size_t max, ProjectId project, std::string_view what) {
  std::size_t all = 0, of_project = 0;
  for (const auto& [name, each] : map) {
    if constexpr (std::is_same_v<typename Map::mapped_type, Domain>)
      if (is_held(each))
        continue;
    ++all;
    of_project += each.project == project;
  }
  if (all >= max)
    return fail(Code::exhausted, fmt::format("{} {} exist already, which is the limit", all, what));
  if (of_project >= max / part_of_project)
    return fail(Code::exhausted,
                fmt::format("the project already has {} {}, which is the limit", of_project, what));
  return {};
}

// Clients send requests to a name for a while after it is gone, with what they want to keep secret.
Status check_not_held(const State& state,
                      const std::string& name,
                      ProjectId project,
                      WallTime now) {
  const auto found = state.front_door.domains.find(held_name(name));
  if (found == state.front_door.domains.end() || !is_held(found->second) ||
      found->second.project == project || !state.projects.contains(found->second.project) ||
      found->second.made_at + name_held_for <= now)
    return {};
  return fail(
      Code::conflict,
      fmt::format("\"{}\" was the name of an endpoint or a model of another project until "
                  "{}, and is held for that project for {} days",
                  name, format_utc(found->second.made_at), name_held_days),
      fmt::format("choose another name, or ask an admin to free it: billow model rm {}", name));
}

// Clients of an endpoint name it as their model, so no other project may lead that name elsewhere.
Status check_model_is_free(const State& state, const ModelRoute& route, WallTime now) {
  const std::string name = lower(route.name);
  for (const auto& [other, endpoint] : state.endpoints)
    if (endpoint.project != route.project && lower(other) == name)
      return fail(Code::conflict,
                  fmt::format("\"{}\" is the name of another project's endpoint", other),
                  "choose another name for the model");
  for (const auto& [other, before] : state.front_door.models)
    if (other != route.name && before.project != route.project && lower(other) == name)
      return fail(Code::conflict,
                  fmt::format("\"{}\" is the name of another project's model", other),
                  "choose a name that differs in more than case");
  return check_not_held(state, route.name, route.project, now);
}

bool may_add_domains(const State& state, UserId user) {
  const auto found = state.users.find(user);
  return found != state.users.end() &&
         permissions_of(state, found->second).has(Permission::projects_change);
}

template <class Map>
auto rows_of(const Map& map) {
  std::vector<typename Map::mapped_type> out;
  out.reserve(map.size());
  for (const auto& [key, value] : map)
    out.push_back(value);
  return out;
}

}  // namespace

std::string domain_name(std::string_view name) {
  if (name.ends_with('.'))
    name.remove_suffix(1);
  return lower(name);
}

Status check_not_of_gateways(const std::string& domain, const GatewayNames& gateways) {
  const auto below = [&](std::string_view parent) {
    return domain.size() > parent.size() + 1 && domain.ends_with(parent) &&
           domain[domain.size() - parent.size() - 1] == '.';
  };
  constexpr std::string_view hint = "use a host name that you own, such as chat.example.org";
  if (domain == "localhost" || below("localhost"))
    return fail(Code::invalid, fmt::format("{} is reserved: every machine has this name", domain),
                std::string(hint));
  BILLOW_TRY_VOID(check_domain_name(domain));
  for (const std::string& each : gateways.hosts)
    if (domain == domain_name(each.substr(0, each.rfind(':'))))
      return fail(Code::conflict,
                  fmt::format("{} is the name of the gateway, which serves all endpoints", domain),
                  std::string(hint));
  for (const std::string& each : gateways.domains) {
    const std::string own = domain_name(each);
    if (domain == own || below(own))
      return fail(Code::conflict,
                  fmt::format("{} is the gateway's own domain{}", own,
                              domain == own ? "" : ", and names below it are names of endpoints"),
                  fmt::format("endpoint NAME is served at NAME.{} already", own));
  }
  return {};
}

Error only_admins_add(const Domain& domain) {
  return {Code::forbidden,
          fmt::format("only an admin of the installation can give {} to a project, because all "
                      "requests to that name then go there",
                      domain.name),
          fmt::format("ask one to run: billow domain add {} {}", domain.name, domain.endpoint)};
}

std::string held_name(std::string_view name) {
  return domain_name("name:" + std::string(name));
}

bool is_held(const Domain& domain) {
  return domain.name.starts_with("name:");
}

void hold_names(const State& state,
                const HeldNames& held,
                WallTime now,
                std::vector<EventBody>& events) {
  std::vector<const Domain*> before;
  for (const auto& [key, domain] : state.front_door.domains)
    if (is_held(domain) && domain.project == held.project)
      before.push_back(&domain);
  std::ranges::sort(before, {}, &Domain::made_at);
  std::size_t left = before.size() + held.names.size();
  for (const Domain* each : before)
    if (left > held_names_max || each->made_at + name_held_for <= now) {
      events.push_back(DomainSet{*each, true});
      --left;
    }
  for (const std::string& name : held.names) {
    Domain kept;
    kept.name = held_name(name);
    kept.project = held.project;
    kept.user = held.user;
    kept.made_at = now;
    events.push_back(DomainSet{std::move(kept), false});
  }
}

Status check_endpoint_name(const State& state,
                           const std::string& name,
                           ProjectId project,
                           WallTime now) {
  const std::string plain = lower(name);
  for (const auto& [other, endpoint] : state.endpoints)
    if (lower(other) == plain)
      return fail(Code::conflict,
                  fmt::format("the name \"{}\" differs only in case from endpoint \"{}\", and "
                              "host names ignore case",
                              name, other),
                  "choose another name");
  for (const auto& [other, route] : state.front_door.models)
    if (route.project != project && lower(other) == plain)
      return fail(Code::conflict,
                  fmt::format("\"{}\" is a model of another project, which gets the requests to "
                              "/v1 that name it",
                              other),
                  fmt::format("choose another name, or ask an admin to remove that model: billow "
                              "model rm {}",
                              other));
  return check_not_held(state, name, project, now);
}

Decision Decider::operator()(const SetModelRoute& c) {
  const auto& models = state.front_door.models;
  const auto found = models.find(c.route.name);
  if (c.route.to.empty() && c.route.fallbacks.empty()) {
    if (found == models.end())
      return fail(Code::not_found, fmt::format("there is no model route \"{}\"", c.route.name),
                  "see `billow model list`");
    Events events{ModelRouteSet{found->second, true}};
    const ModelRoute& gone = found->second;
    hold_names(state, {gone.project, gone.user, {gone.name}}, context.now, events);
    return events;
  }
  BILLOW_TRY_VOID(check_model_name(c.route.name));
  BILLOW_TRY_VOID(check_targets(c.route));
  ModelRoute route = c.route;
  for (const ModelTarget& target : route.to)
    BILLOW_TRY_VOID(endpoint_named(target.endpoint));
  for (const std::string& fallback : route.fallbacks)
    BILLOW_TRY_VOID(endpoint_named(fallback));
  route.project = state.endpoints.at(route.to.front().endpoint).project;
  route.made_at = context.now;
  BILLOW_TRY_VOID(check_model_is_free(state, route, context.now));
  if (found != models.end()) {
    route.user = found->second.user;
    route.made_at = found->second.made_at;
    if (route == found->second)
      return Events{};
  } else {
    BILLOW_TRY_VOID(check_count(models, limits::model_routes_max, route.project, "model routes"));
    BILLOW_TRY_VOID(check_objects(state, route.user, route.project, context.now));
  }
  return Events{ModelRouteSet{std::move(route), false}};
}

Decision Decider::operator()(const SetDomain& c) {
  const auto& domains = state.front_door.domains;
  Domain domain = c.domain;
  domain.name = domain_name(domain.name);
  const auto found = domains.find(domain.name);
  if (domain.endpoint.empty()) {
    if (found == domains.end())
      return fail(Code::not_found, fmt::format("there is no domain \"{}\"", domain.name),
                  "see `billow domain list`");
    return Events{DomainSet{found->second, true}};
  }
  BILLOW_TRY_VOID(check_domain_name(domain.name));
  const Endpoint* endpoint = BILLOW_TRY(endpoint_named(domain.endpoint));
  domain.project = endpoint->project;
  domain.made_at = context.now;
  // A project may lead its names to any of its endpoints. Everything else gives it a name.
  if (found != domains.end() && found->second.project == domain.project) {
    domain.user = found->second.user;
    domain.made_at = found->second.made_at;
    if (domain == found->second)
      return Events{};
  } else {
    if (!may_add_domains(state, domain.user))
      return pass(only_admins_add(domain));
    BILLOW_TRY_VOID(check_count(domains, limits::domains_max, domain.project, "domains"));
    BILLOW_TRY_VOID(check_objects(state, domain.user, domain.project, context.now));
  }
  return Events{DomainSet{std::move(domain), false}};
}

Decision Decider::operator()(const SetRequestLimits& c) {
  BILLOW_TRY_VOID(endpoint_named(c.limits.endpoint));
  const auto found = state.front_door.limits.find(c.limits.endpoint);
  const bool same =
      found == state.front_door.limits.end() ? !c.limits.any() : found->second == c.limits;
  return same ? Events{} : Events{RequestLimitsSet{c.limits}};
}

// ---- events

void Applier::operator()(const ModelRouteSet& e) {
  if (e.removed)
    state.front_door.models.erase(e.route.name);
  else
    state.front_door.models[e.route.name] = e.route;
}

void Applier::operator()(const DomainSet& e) {
  if (e.removed)
    state.front_door.domains.erase(e.domain.name);
  else
    state.front_door.domains[e.domain.name] = e.domain;
}

void Applier::operator()(const RequestLimitsSet& e) {
  if (e.limits.any())
    state.front_door.limits[e.limits.endpoint] = e.limits;
  else
    state.front_door.limits.erase(e.limits.endpoint);
}

void Applier::close_front_door(const std::string& endpoint) {
  FrontDoor& door = state.front_door;
  door.limits.erase(endpoint);
  std::erase_if(door.domains, [&](const auto& each) { return each.second.endpoint == endpoint; });
  for (auto& [name, route] : door.models) {
    std::erase_if(route.to, [&](const ModelTarget& t) { return t.endpoint == endpoint; });
    std::erase(route.fallbacks, endpoint);
  }
  std::erase_if(door.models, [](const auto& each) { return each.second.to.empty(); });
}

// ---- the image of the state

FrontDoorImage image_of(const FrontDoor& door) {
  return {rows_of(door.models), rows_of(door.domains), rows_of(door.limits)};
}

FrontDoorImage served_front_door(const State& state) {
  FrontDoorImage out = image_of(state.front_door);
  std::erase_if(out.domains, is_held);
  std::erase_if(out.models, [&](const ModelRoute& route) {
    const auto named = state.endpoints.find(route.name);
    return named != state.endpoints.end() && named->second.project != route.project;
  });
  return out;
}

FrontDoor restore_front_door(FrontDoorImage image) {
  FrontDoor out;
  for (ModelRoute& each : image.models)
    out.models[each.name] = std::move(each);
  for (Domain& each : image.domains)
    out.domains[each.name] = std::move(each);
  for (RequestLimits& each : image.limits)
    out.limits[each.endpoint] = std::move(each);
  return out;
}

}  // namespace billow::control
