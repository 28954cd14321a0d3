#include "core/control/decide/front_door.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
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

template <class Map>
auto rows_of(const Map& map) {
  std::vector<typename Map::mapped_type> out;
  out.reserve(map.size());
  for (const auto& [key, value] : map)
    out.push_back(value);
  return out;
}

}  // namespace

Decision Decider::operator()(const SetModelRoute& c) {
  const auto& models = state.front_door.models;
  const auto found = models.find(c.route.name);
  if (c.route.to.empty() && c.route.fallbacks.empty()) {
    if (found == models.end())
      return fail(Code::not_found, fmt::format("there is no model route \"{}\"", c.route.name),
                  "see `billow model list`");
    return Events{ModelRouteSet{found->second, true}};
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
  if (found != models.end()) {
    route.user = found->second.user;
    route.made_at = found->second.made_at;
    if (route == found->second)
      return Events{};
  } else {
    if (models.size() >= limits::model_routes_max)
      return fail(Code::exhausted,
                  fmt::format("{} model routes exist already, which is the limit", models.size()));
    BILLOW_TRY_VOID(check_objects(state, route.user, route.project, context.now));
  }
  return Events{ModelRouteSet{std::move(route), false}};
}

Decision Decider::operator()(const SetDomain& c) {
  const auto& domains = state.front_door.domains;
  Domain domain = c.domain;
  domain.name = lower(domain.name);
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
  if (found != domains.end()) {
    domain.user = found->second.user;
    domain.made_at = found->second.made_at;
    if (domain == found->second)
      return Events{};
  } else {
    if (domains.size() >= limits::domains_max)
      return fail(Code::exhausted,
                  fmt::format("{} domains exist already, which is the limit", domains.size()));
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
