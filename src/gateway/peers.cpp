#include "gateway/peers.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"

namespace billow::gateway {
namespace {
constexpr Duration ask_every = seconds(2);
constexpr Duration answer_within = seconds(3);
}  // namespace

Peers::~Peers() {
  for (const auto& peer : peers_)
    if (peer->upstream)
      peer->upstream->close();
}

void Peers::take(const std::vector<PeerRow>& rows) {
  std::vector<std::shared_ptr<Peer>> kept;
  for (const PeerRow& row : rows) {
    const auto same =
        std::find_if(peers_.begin(), peers_.end(), [&](const auto& p) { return p->row == row; });
    if (same != peers_.end()) {
      kept.push_back(*same);
      continue;
    }
    auto made = Upstream::create(++last_key_, row.address);
    if (!made) {
      if (warned_.insert(row.address).second)
        log_warn("gateway of region {}: {}", row.region, made.error().message);
      continue;
    }
    auto peer = std::make_shared<Peer>();
    peer->row = row;
    peer->upstream = std::move(*made);
    const auto colon = row.key.find(':');
    peer->upstream->peer_key = row.key.substr(0, colon);
    if (const Status safe = secure(
            *peer, colon == std::string::npos ? std::string() : row.key.substr(colon + 1), loop_);
        !safe) {
      if (warned_.insert(row.address).second)
        log_warn("not using the gateway of region {}: {}", row.region, safe.error().message);
      continue;
    }
    kept.push_back(std::move(peer));
  }
  for (const auto& old : peers_)
    if (std::find(kept.begin(), kept.end(), old) == kept.end())
      old->upstream->close();
  peers_ = std::move(kept);
  tick(loop_.steady());
}

Status Peers::secure(Peer& peer, const std::string& pin, net::Loop& loop) {
  if (pin.empty()) {
    const auto address = BILLOW_TRY(net::parse_address(peer.row.address));
    if (address.is_unix() || address.host == "localhost" || address.host == "::1" ||
        address.host.starts_with("127."))
      return {};
    return fail(Code::forbidden,
                fmt::format("{} has no certificate; requests to other machines must be encrypted",
                            peer.row.address),
                "start it with --data DIR");
  }
  net::TlsClientOptions tls{.ca_path = {}, .pinned_fingerprint = pin};
  tls.server_name = gateway_name;
  peer.upstream->tls = BILLOW_TRY(net::TlsContext::client(tls));
  peer.client = BILLOW_TRY(net::HttpClient::create(loop, {.tls = tls}));
  return {};
}

void Peers::tick(SteadyTime now) {
  for (const auto& peer : peers_)
    if (!peer->asking && now >= peer->ask_at)
      ask(peer);
}

void Peers::ask(const std::shared_ptr<Peer>& peer) {
  peer->asking = true;
  net::ClientRequest request;
  request.endpoint.address = net::parse_address(peer->row.address).value_or(net::Address{});
  request.endpoint.tls = peer->client != nullptr;
  request.target = "/healthz";
  request.timeout = answer_within;
  request.headers = {{"User-Agent", "billow-gateway"}, {"Connection", "close"}};
  (peer->client ? *peer->client : client_)
      .fetch(std::move(request), [weak = std::weak_ptr(peer), began = loop_.steady(),
                                  &loop = loop_](Result<net::Response> answer) {
        const auto live = weak.lock();
        if (!live)
          return;
        const auto now = loop.steady();
        live->asking = false;
        live->ask_at = now + ask_every;
        const bool there = answer && answer->status == 200;
        // The newest counts for half: distances change slowly, and single answers are late by
        // chance.
        if (there)
          live->round_trip_ns =
              live->there ? (live->round_trip_ns + (now - began).ns) / 2 : (now - began).ns;
        if (there != live->there)
          log_info("the gateway {} {}",
                   live->row.region.empty() ? "beside this one" : "of region " + live->row.region,
                   there ? "answers" : "does not answer");
        live->there = there;
        live->asked = true;
      });
}

std::shared_ptr<Upstream> Peers::nearest(
    const std::function<bool(const std::string& region)>& fits) const {
  const Peer* best = nullptr;
  for (const auto& peer : peers_)
    if (peer->there && fits(peer->row.region) &&
        (!best || peer->round_trip_ns < best->round_trip_ns))
      best = peer.get();
  return best ? best->upstream : nullptr;
}

bool Peers::may_reach(const std::function<bool(const std::string& region)>& fits) const {
  return std::ranges::any_of(peers_, [&](const auto& peer) {
    return (peer->there || !peer->asked) && fits(peer->row.region);
  });
}

void Peers::lost(ReplicaKey key) {
  for (const auto& peer : peers_)
    if (peer->upstream->key == key)
      peer->there = false;
}

}  // namespace billow::gateway
