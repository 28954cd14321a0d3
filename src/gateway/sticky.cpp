// Requests that belong together, and the replica that they get: by a header, a cookie or the
// address of their sender, or by a cookie of the gateway that names the replica.
//
// Both are keyed with a secret of this gateway. So the cookie reveals nothing about the replica and
// cannot be invented, and nobody can choose headers in order to crowd one replica. A name that
// belongs to no replica counts as none.
#include <cstdlib>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "gateway/gateway.h"

namespace billow::gateway {
namespace {

constexpr std::size_t token_digits = 32;

std::string cookie_named(const net::Headers& headers, std::string_view wanted) {
  for (const auto& [name, value] : headers) {
    if (!net::equal_nocase(name, "Cookie"))
      continue;
    for (const std::string& pair : split(value, ';')) {
      const std::string_view cookie = trim(pair);
      if (const auto equals = cookie.find('=');
          equals != cookie.npos && cookie.substr(0, equals) == wanted)
        return std::string(cookie.substr(equals + 1));
    }
  }
  return {};
}

}  // namespace

std::string sender_of(const Front& front, std::string_view sticky) {
  const auto& headers = front.head().headers;
  if (sticky == "client") {
    const auto& offered = front.ticket.offered;
    const std::string key = offered ? offered->key : offered_key(headers).key;
    // The port of a client's address differs from connection to connection.
    return key.empty() ? front.peer().substr(0, front.peer().rfind(':')) : key;
  }
  if (sticky.starts_with("header:"))
    return std::string(headers.get(sticky.substr(7)));
  if (sticky.starts_with("cookie:"))
    return cookie_named(headers, sticky.substr(7));
  return {};
}

// Kept, so that senders have the same replicas after a restart.
void Gateway::load_sticky_secret() {
  sticky_secret_ = random_token(32);
  if (options_.data_dir.empty())
    return;
  const std::string path = options_.data_dir + "/sticky.key";
  if (const auto kept = read_file(path, 4096); kept && kept->size() >= 32)
    sticky_secret_ = *kept;
  else if (const auto written = write_file_atomic(path, sticky_secret_, 0600); !written)
    log_warn("{}", written.error().message);
}

void Gateway::wish_for_replica(Front& front, LiveEndpoint& endpoint) {
  const std::string& sticky = endpoint.policy().sticky;
  if (sticky == "cookie") {
    const std::string token = cookie_named(front.head().headers, replica_cookie);
    if (token.size() == token_digits)
      front.ticket.wish.replica = endpoint.replica_with_token(token, sticky_secret_);
    return;
  }
  const std::string sender = sender_of(front, sticky);
  if (sender.empty())
    return;
  const std::string hash = hmac_sha256_hex(sticky_secret_, "sender\n" + sender);
  front.ticket.wish.sender = std::strtoull(hash.substr(0, 16).c_str(), nullptr, 16) | 1;
}

void Gateway::give(const std::shared_ptr<Front>& front,
                   const std::shared_ptr<LiveEndpoint>& endpoint,
                   const std::shared_ptr<Upstream>& upstream) {
  Ticket& ticket = front->ticket;
  ticket.set_cookie.clear();  // of an earlier try
  if (endpoint->policy().sticky == "cookie" && ticket.wish.replica != upstream->key)
    ticket.set_cookie = fmt::format(
        "{}={}; Path={}; HttpOnly; SameSite=Lax{}", replica_cookie,
        endpoint->token_of(upstream->key, sticky_secret_),
        ticket.prefix_bytes > 0 ? front->head().target.substr(0, ticket.prefix_bytes) + "/" : "/",
        front->tls() ? "; Secure" : "");
  act(
      front, ticket.id, [front, upstream] { front->give(upstream); },
      [this, endpoint, upstream, id = ticket.id] {
        const Decision decision(*this);
        endpoint->router.finished(upstream->key, loop_.steady(), id);
      });
}

std::string LiveEndpoint::token_of(ReplicaKey key, std::string_view secret) {
  const auto found = replicas_.find(key);
  if (found == replicas_.end())
    return {};
  std::string& token = found->second.token;
  if (token.empty())
    token =
        hmac_sha256_hex(secret, fmt::format("replica\n{}\n{}", name_, key)).substr(0, token_digits);
  return token;
}

ReplicaKey LiveEndpoint::replica_with_token(std::string_view token, std::string_view secret) {
  for (const auto& [key, live] : replicas_)
    if (equal_constant_time(token_of(key, secret), token))
      return key;
  return 0;
}

}  // namespace billow::gateway
