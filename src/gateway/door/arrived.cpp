// Where a request goes: by its host name, by its path, or by what gRPC says. Before that, whether
// it may come without TLS, and afterwards, whether it is too large.
#include <fmt/format.h>

#include "base/crypto.h"
#include "base/text.h"
#include "gateway/calls.h"
#include "gateway/gateway.h"
#include "gateway/grpc.h"

namespace billow::gateway {
namespace {

constexpr std::string_view challenge_prefix = "/.well-known/acme-challenge/";

net::Response no_endpoint(std::string_view name, const std::string& request_id) {
  return net::problem(
      404, fmt::format("no endpoint is named \"{}\"", check_name("endpoint", name) ? name : "?"),
      "see `billow endpoints`", request_id);
}

}  // namespace

// A gateway that has gone or whose token was revoked still has the key.
void Gateway::renew_peer_key(std::uint64_t epoch) {
  constexpr Duration until_heard = seconds(15);
  if (std::exchange(peer_epoch_, epoch) == epoch)
    return;
  old_peer_key_ = std::exchange(peer_key_, random_token(24));
  old_peer_key_until_ = loop_.steady() + until_heard;
}

const std::string& Gateway::peer_key_for(const Front& front) const {
  const bool old = !old_peer_key_.empty() && loop_.steady() < old_peer_key_until_ &&
                   equal_constant_time(front.head().headers.get(peer_header), old_peer_key_);
  return old ? old_peer_key_ : peer_key_;
}

// Until the gateway has a table, it knows neither endpoints nor models nor domains, and cannot say
// that one does not exist.
bool Gateway::refuse_ignorant(const std::shared_ptr<Front>& front, bool by_model) {
  if (knows_endpoints_)
    return false;
  const std::string why = forgotten_why_.empty()
                              ? "this gateway has not reached its head yet and knows no endpoint"
                              : forgotten_why_;
  auto answer = by_model
                    ? api_error(503, "gateway_not_ready", why)
                    : net::problem(503, why, "its log says why; the address of the head is --head",
                                   front->request_id());
  answer.headers.add("Retry-After", "1");
  refuse(front, std::move(answer));
  return true;
}

void Gateway::arrived(const std::shared_ptr<Front>& front) {
  const Decision decision(*this);
  front->ticket.id = ++last_request_;
  if (refuse_plain(front))
    return;
  const std::string_view path = front->path();
  const auto& headers = front->head().headers;
  if (headers.has(peer_header))
    return arrived_from_peer(front);
  const auto found = hosts_.find(headers.get("Host"));
  if (found.kind == HostNames::Kind::unknown && path != "/healthz" && !is_own_call(*front)) {
    if (refuse_ignorant(front, false))
      return;
    return refuse(
        front,
        net::problem(
            421, fmt::format("this gateway does not serve {}", host_of(headers.get("Host"))),
            "use the gateway's address or NAME.DOMAIN; admins add others: billow domain add DOMAIN "
            "ENDPOINT",
            front->request_id()));
  }
  front->ticket.own_name = found.by_own_domain || found.kind == HostNames::Kind::endpoint;
  if (found.kind == HostNames::Kind::endpoint && !is_own_call(*front))
    return arrived_by_host(front, found);
  if (is_grpc(front->head()) && !path.starts_with(endpoint_prefix))
    return arrived_by_grpc(front);
  if (path.starts_with("/v1/"))
    return front_door(front);
  if (!path.starts_with(endpoint_prefix))
    return own_page(front);
  arrived_by_path(front);
}

void Gateway::arrived_by_path(const std::shared_ptr<Front>& front) {
  const std::string_view path = front->path();
  const std::string_view name = path.substr(
      endpoint_prefix.size(), path.find('/', endpoint_prefix.size()) - endpoint_prefix.size());
  const auto endpoint = find(name);
  if (!endpoint && refuse_ignorant(front, false))
    return;
  if (!endpoint)
    return refuse(front, no_endpoint(name, front->request_id()));
  arrived_at(front, endpoint, endpoint_prefix.size() + name.size());
}

// Another gateway has admitted the client to one endpoint: the one it names, else the one of the
// path. Nothing else of the request, its host for example, may lead to another one.
void Gateway::arrived_from_peer(const std::shared_ptr<Front>& front) {
  const auto& headers = front->head().headers;
  if (headers.count(peer_header) != 1 ||
      !equal_constant_time(headers.get(peer_header), peer_key_for(*front)))
    return refuse(front, net::problem(403, fmt::format("{} is not for clients", peer_header), "",
                                      front->request_id()));
  front->from_gateway();
  if (!headers.has(grpc_endpoint_header)) {
    if (front->path().starts_with(endpoint_prefix))
      return arrived_by_path(front);
    return own_page(front);
  }
  const auto named = headers.get(grpc_endpoint_header);
  const auto endpoint = headers.count(grpc_endpoint_header) == 1 ? find(named) : nullptr;
  if (!endpoint && refuse_ignorant(front, false))
    return;
  if (!endpoint)
    return refuse(front, no_endpoint(named, front->request_id()));
  arrived_at(front, endpoint, 0);
}

void Gateway::arrived_at(const std::shared_ptr<Front>& front,
                         const std::shared_ptr<LiveEndpoint>& endpoint,
                         std::size_t prefix_bytes) {
  if (auto answer = cors_preflight(*front, endpoint->policy()))
    return refuse(front, std::move(*answer));
  if (auto no = check_access(*front, *endpoint, secret_, peer_key_for(*front)))
    return refuse(front, std::move(*no));
  serve(front, endpoint, prefix_bytes);
}

std::shared_ptr<LiveEndpoint> Gateway::find_by_host(const HostNames::Found& found) const {
  if (const auto exact = find(found.endpoint); exact || !found.by_own_domain)
    return exact;
  // Two names that differ in case (from fixed endpoints or an older head): neither is right.
  std::shared_ptr<LiveEndpoint> only;
  for (const auto& [name, endpoint] : endpoints_)
    if (net::equal_nocase(name, found.endpoint)) {
      if (only)
        return nullptr;
      only = endpoint;
    }
  return only;
}

void Gateway::arrived_by_host(const std::shared_ptr<Front>& front, const HostNames::Found& found) {
  const auto endpoint = find_by_host(found);
  if (front->path().starts_with(own_prefix) && front->path().size() > own_prefix.size() &&
      front->path()[own_prefix.size()] == '/') {
    // Browsers take everything below a host name for one application: nothing of another endpoint
    // may be shown there.
    front->ticket.by_host = true;
    front->ticket.host_endpoint = endpoint ? endpoint->name() : "";
    return own_page(front);
  }
  if (!endpoint && refuse_ignorant(front, false))
    return;
  if (!endpoint && found.endpoint.empty())
    return refuse(front, net::problem(404, "the endpoint of this host name was deleted",
                                      "see `billow domain list`", front->request_id()));
  if (!endpoint)
    return refuse(front, no_endpoint(found.endpoint, front->request_id()));
  front->ticket.by_host = true;
  arrived_at(front, endpoint, 0);
}

void Gateway::arrived_by_grpc(const std::shared_ptr<Front>& front) {
  const std::string_view name = grpc_endpoint(front->head());
  const auto endpoint = find(name);
  if (!endpoint && refuse_ignorant(front, false))
    return;
  if (!endpoint)
    return refuse(
        front, net::problem(
                   404,
                   fmt::format(
                       "no endpoint is named \"{}\"; name it with the metadata {}, or as the first "
                       "part of the authority",
                       check_name("endpoint", name) ? name : "?", lower(grpc_endpoint_header)),
                   "", front->request_id()));
  if (auto no = check_access(*front, *endpoint, secret_, peer_key_for(*front)))
    return refuse(front, std::move(*no));
  serve(front, endpoint, 0);
}

// An asynchronous call that this gateway carries out.
bool Gateway::is_own_call(const Front& front) const {
  const auto own = front.head().headers.get(internal_header);
  return !own.empty() && equal_constant_time(own, secret_);
}

// Keys and answers do not cross a network in the clear. A client that comes without TLS is told
// where to come; authorities that check a host name come without it.
bool Gateway::refuse_plain(const std::shared_ptr<Front>& front) {
  if (acme_ && front->path().starts_with(challenge_prefix)) {
    const auto answer = acme_->challenge(front->path().substr(challenge_prefix.size()));
    if (answer.empty())
      refuse(front, net::problem(404, "no such challenge", "", front->request_id()));
    else
      respond(front, {200, {{"Content-Type", "application/octet-stream"}}, answer});
    return true;
  }
  if (plain_everywhere_ || front->tls())
    return false;
  if ((own_certificate_ && front->on_this_machine()) || is_own_call(*front))
    return false;
  const auto host = front->head().headers.get("Host");
  if ((front->head().method == "GET" || front->head().method == "HEAD") && !host.empty()) {
    net::Response moved{308, {}, ""};
    moved.headers.add("Location", fmt::format("https://{}{}", host, front->head().target));
    refuse(front, std::move(moved));
    return true;
  }
  refuse(front, net::problem(403, "this gateway accepts only https",
                             "use https:// with the same address; replace a key that was sent "
                             "without TLS",
                             front->request_id()));
  return true;
}

std::optional<net::Response> Gateway::check_size(Front& front, const LiveEndpoint& endpoint) const {
  const auto found = limits_.find(endpoint.name());
  front.ticket.body_bytes_max = found == limits_.end() ? 0 : found->second.body_bytes_max;
  if (found == limits_.end())
    return std::nullopt;
  const RequestLimits& limits = found->second;
  if (limits.body_bytes_max > 0 &&
      std::max<std::uint64_t>(front.body_size().value_or(0), front.ticket.bytes_in) >
          limits.body_bytes_max)
    return body_too_large(front);
  std::uint64_t bytes = 0;
  for (const auto& [name, value] : front.head().headers)
    bytes += name.size() + value.size();
  if (limits.header_bytes_max > 0 && bytes > limits.header_bytes_max)
    return net::problem(431,
                        fmt::format("the header fields have {}, more than the limit of {}",
                                    format_bytes(bytes), format_bytes(limits.header_bytes_max)),
                        "", front.request_id());
  return std::nullopt;
}

}  // namespace billow::gateway
