// Who may call an endpoint: holders of keys, its owner on this machine, browsers of other sites.
#include <arpa/inet.h>
#include <pwd.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "gateway/gateway.h"

namespace billow::gateway {
namespace {

// Whether a Host header names this machine by an address. A name could be one that an attacker
// lets point here (DNS rebinding), so that pages of the attacker count as ours. Browsers always
// send one; programs that speak HTTP/1.0 need not.
bool is_own_name(std::string_view host) {
  if (host.empty())
    return true;
  std::string name(host.substr(
      0, host.rfind(':') == host.npos || host.ends_with(']') ? host.size() : host.rfind(':')));
  if (name.starts_with('[') && name.ends_with(']'))
    name = name.substr(1, name.size() - 2);
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, name.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), bytes) == 1 || net::equal_nocase(name, "localhost");
}

// Accounts that belong to nobody in particular: services share them, and so does a gateway that a
// head of root starts (billow-gateway, nobody).
bool is_shared_account(unsigned uid) {
  constexpr unsigned first_person = 1000, nobody = 65534;
  return uid < first_person || uid == nobody;
}

// The owner of the endpoint and root need no key on this machine. All users of a machine share its
// loopback address, and so do the jobs of others. The gateway's own account is nobody's, unless a
// person runs the gateway.
bool may_call_locally(unsigned uid, const std::string& account) {
  if (uid == 0)
    return true;
  if (uid == ::geteuid() && is_shared_account(uid))
    return false;
  const passwd* owner = account.empty() ? nullptr : ::getpwnam(account.c_str());
  return owner && owner->pw_uid == uid;
}

// A page of another site can make a browser call us; only origins that were named may, unless the
// page knows a key.
std::optional<net::Response> check_origin(const Front& front) {
  const auto& headers = front.head().headers;
  const auto host = headers.get("Host"), origin = headers.get("Origin");
  if (origin.empty() || !front.ticket.allow_origin.empty() ||
      (!host.empty() && origin.ends_with(std::string("://") + std::string(host))))
    return std::nullopt;
  return net::problem(403, fmt::format("calls from pages of {} are not allowed", origin),
                      "deploy the endpoint with --cors " + std::string(origin), front.request_id());
}

std::optional<net::Response> check_local(const Front& front) {
  const auto host = front.head().headers.get("Host");
  if (!front.ticket.own_name && !is_own_name(host))
    return net::problem(421, fmt::format("{} is not a name of this gateway", host),
                        "without a key, call it by its address, e.g. http://127.0.0.1",
                        front.request_id());
  return check_origin(front);
}

}  // namespace

// Hashed once for a request, however many endpoints it is shown to.
const OfferedKey& offered_by(Front& front) {
  auto& offered = front.ticket.offered;
  if (!offered)
    offered = offered_key(front.head().headers);
  return *offered;
}

bool cannot_open(Front& front, const LiveEndpoint& endpoint) {
  const auto& headers = front.head().headers;
  if (endpoint.policy().access == EndpointAccess::open || headers.has(peer_header) ||
      headers.has(internal_header) || endpoint.key_for(offered_by(front).hash))
    return false;
  return endpoint.policy().access == EndpointAccess::key || !front.local_user();
}

// Strangers are known by their network only: one machine commonly has all of an IPv6 /64.
BodyParty Gateway::party_of(Front& front) const {
  const std::string& hash = offered_by(front).hash;
  const WallTime now = system_clock().wall();
  if (!hash.empty())
    for (const auto& [name, endpoint] : endpoints_)
      if (const KeyRow* key = endpoint->key_for(hash);
          key && (!key->expires_at || key->expires_at > now))
        return {"key " + hash, true};
  const std::string network = net::network_of_peer(front.peer());
  if (equal_constant_time(front.head().headers.get(peer_header), peer_key_for(front)))
    return {"gateway " + network, true};
  if (const auto user = front.local_user())
    return {fmt::format("user {}", *user), true};
  return {"client " + network, false};
}

std::optional<net::Response> check_access(Front& front,
                                          const LiveEndpoint& endpoint,
                                          std::string_view secret,
                                          std::string_view peer_key) {
  const auto& headers = front.head().headers;
  // Also refused: an empty one, and one beside another.
  if (const std::size_t peers = headers.count(peer_header); peers > 0) {
    if (peers > 1 || peer_key.empty() || !equal_constant_time(headers.get(peer_header), peer_key))
      return net::problem(403, fmt::format("{} is not for clients", peer_header), "",
                          front.request_id());
    front.ticket.from_peer = true;  // the other gateway has admitted the client
    front.ticket.strip_header = peer_header;
    return std::nullopt;
  }
  if (const std::size_t internals = headers.count(internal_header); internals > 0) {
    if (internals > 1 || secret.empty() ||
        !equal_constant_time(headers.get(internal_header), secret))
      return net::problem(403, fmt::format("{} is not for clients", internal_header), "",
                          front.request_id());
    front.ticket.strip_header = internal_header;
    front.ticket.own_call = true;
    front.ticket.key = headers.get(call_key_header);
    front.ticket.key_endpoint = headers.get(call_key_endpoint_header);
    return std::nullopt;
  }
  if (!endpoint.policy().cors.empty()) {
    const auto origin = headers.get("Origin");
    for (const auto& allowed : endpoint.policy().cors)
      if (!origin.empty() && (allowed == "*" || net::equal_nocase(allowed, origin)))
        front.ticket.allow_origin = allowed == "*" ? "*" : std::string(origin);
  }
  const auto access = endpoint.policy().access;
  if (access == EndpointAccess::open)
    return std::nullopt;
  const OfferedKey& offered = offered_by(front);
  const KeyRow* key = endpoint.key_for(offered.hash);
  const bool expired = key && key->expires_at && key->expires_at <= system_clock().wall();
  if (key && !expired) {
    front.ticket.strip_header = offered.header;
    front.ticket.key = key->name;
    return offered.by_browser ? check_origin(front) : std::nullopt;
  }
  if (access == EndpointAccess::local)
    if (const auto uid = front.local_user(); uid && may_call_locally(*uid, endpoint.row().account))
      return check_local(front);
  auto answer = net::problem(
      401,
      offered.key.empty() ? std::string("this endpoint needs a key")
      : expired
          ? fmt::format("the key \"{}\" expired at {}", key->name, format_utc(key->expires_at))
          : std::string("the key is not valid for this endpoint"),
      fmt::format("send it as: Authorization: Bearer KEY; the owner creates keys with: billow "
                  "endpoint-key {}",
                  endpoint.name()),
      front.request_id());
  answer.headers.add("WWW-Authenticate",
                     fmt::format("Basic realm=\"{}\", charset=\"UTF-8\"", endpoint.name()));
  return answer;
}

std::optional<net::Response> cors_preflight(Front& front, const EndpointPolicy& policy) {
  const auto& headers = front.head().headers;
  const auto origin = headers.get("Origin"), method = headers.get("Access-Control-Request-Method");
  if (policy.cors.empty() || front.head().method != "OPTIONS" || origin.empty() || method.empty())
    return std::nullopt;
  net::Response answer{204, {}, ""};
  for (const auto& allowed : policy.cors) {
    if (allowed != "*" && !net::equal_nocase(allowed, origin))
      continue;
    front.ticket.allow_origin = allowed == "*" ? "*" : std::string(origin);
    answer.headers.add("Access-Control-Allow-Methods",
                       "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    if (const auto wanted = headers.get("Access-Control-Request-Headers"); !wanted.empty())
      answer.headers.add("Access-Control-Allow-Headers", std::string(wanted));
    answer.headers.add("Access-Control-Max-Age", "600");
    return answer;
  }
  return net::problem(403, fmt::format("calls from pages of {} are not allowed", origin), "",
                      front.request_id());
}

}  // namespace billow::gateway
