// The front door of the endpoints: names of models below /v1, host names of their own, and limits
// of what a request may bring. Endpoints are named by their names. When one is deleted, nothing
// leads to it any more, because a later endpoint of that name may belong to somebody else; its host
// names stay with the project, without a target.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace billow {

struct ModelTarget {
  std::string endpoint;
  std::uint32_t weight = 1;  // its part of the requests is its part of all weights
  bool operator==(const ModelTarget&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("weight", s.weight);
  }
};

// Which endpoints serve the requests to /v1/… that name this model.
struct ModelRoute {
  std::string name;  // as clients write it: "gpt-4o-mini", "meta/llama-3"
  ProjectId project;
  UserId user;  // who made it
  WallTime made_at;
  std::vector<ModelTarget> to;
  std::vector<std::string> fallbacks;  // endpoints for what these cannot serve, in this order
  bool operator==(const ModelRoute&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("project", s.project);
    v("user", s.user);
    v("made_at_ns", s.made_at);
    v("to", s.to);
    v("fallbacks", s.fallbacks);
  }
};

// A host name whose requests all go to one endpoint.
struct Domain {
  std::string name;  // in lower case, without a port
  std::string endpoint;
  ProjectId project;
  UserId user;
  WallTime made_at;
  bool operator==(const Domain&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("endpoint", s.endpoint);
    v("project", s.project);
    v("user", s.user);
    v("made_at_ns", s.made_at);
  }
};

// What a request to an endpoint may bring; 0: only the gateway's own limits apply.
struct RequestLimits {
  std::string endpoint;
  std::uint64_t body_bytes_max = 0;
  std::uint64_t header_bytes_max = 0;  // names and values of all fields
  bool any() const { return body_bytes_max > 0 || header_bytes_max > 0; }
  bool operator==(const RequestLimits&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("body_bytes_max", s.body_bytes_max);
    v("header_bytes_max", s.header_bytes_max);
  }
};

struct FrontDoor {
  std::map<std::string, ModelRoute> models;
  std::map<std::string, Domain> domains;
  std::map<std::string, RequestLimits> limits;  // by endpoint
  bool operator==(const FrontDoor&) const = default;
};

// As a snapshot and the gateways' table have it.
struct FrontDoorImage {
  std::vector<ModelRoute> models;
  std::vector<Domain> domains;
  std::vector<RequestLimits> limits;
  bool operator==(const FrontDoorImage&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("models", s.models);
    v("domains", s.domains);
    v("limits", s.limits);
  }
};

// ---- events
struct ModelRouteSet {
  static constexpr const char* kind = "model_route_set";
  ModelRoute route;
  bool removed = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("route", s.route);
    v("removed", s.removed);
  }
};
struct DomainSet {
  static constexpr const char* kind = "domain_set";
  Domain domain;
  bool removed = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("domain", s.domain);
    v("removed", s.removed);
  }
};
struct RequestLimitsSet {
  static constexpr const char* kind = "request_limits_set";
  RequestLimits limits;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("limits", s.limits);
  }
};

// ---- commands. Whether the caller may change the endpoints is checked before.
struct SetModelRoute {
  ModelRoute route;  // without targets and fallbacks: it is removed
};
struct SetDomain {
  Domain domain;  // without an endpoint: it is removed
};
struct SetRequestLimits {
  RequestLimits limits;
};

namespace limits {
inline constexpr std::size_t model_routes_max = 4096;
inline constexpr std::size_t model_route_targets_max = 16;  // and as many fallbacks
inline constexpr std::uint32_t model_weight_max = 1'000'000;
inline constexpr std::size_t domains_max = 4096;
}  // namespace limits

}  // namespace billow
