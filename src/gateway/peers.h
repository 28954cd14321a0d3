// Gateways of other regions. Each is probed from time to time, which also measures its distance, so
// that a request that this region cannot serve goes to the nearest gateway that can. It goes to the
// gateway and not to its replicas: the gateway that steers replicas must see all their requests, or
// it would suspend a busy one. Other machines are reached only over TLS, and a gateway trusts only
// the certificate whose fingerprint the head has announced ("KEY:FINGERPRINT", passed on
// unchanged).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gateway/proxy.h"
#include "gateway/table.h"
#include "net/http/http_client.h"

namespace billow::gateway {

// The header that marks a request from another gateway: already checked, and not to be passed on
// again.
inline constexpr char peer_header[] = "X-Billow-Peer";

// The name that gateways ask each other for, so that host names with other certificates do not
// matter.
inline constexpr std::string_view gateway_name = "gateway.billow";

class Peers {
 public:
  Peers(net::Loop& loop, net::HttpClient& client) : loop_(loop), client_(client) {}
  ~Peers();
  void take(const std::vector<PeerRow>& rows);
  void tick(SteadyTime now);
  // The nearest reachable one whose region `fits`; null if there is none.
  std::shared_ptr<Upstream> nearest(
      const std::function<bool(const std::string& region)>& fits) const;
  // Whether there is one, or one that has not been heard from yet.
  bool may_reach(const std::function<bool(const std::string& region)>& fits) const;
  // It could not be reached: skipped until it answers again.
  void lost(ReplicaKey key);
  static bool is_peer(ReplicaKey key) { return (key & first_key) != 0; }

 private:
  static constexpr ReplicaKey first_key = std::uint64_t{1} << 62;
  struct Peer {
    PeerRow row;
    std::shared_ptr<Upstream> upstream;
    std::unique_ptr<net::HttpClient> client;  // trusts only its certificate; null: it has none
    // Heard of on the first loop; all of them choose by it.
    std::atomic<bool> there = false;
    std::atomic<bool> asked = false;  // the first probe has ended
    std::atomic<std::int64_t> round_trip_ns = 0;
    bool asking = false;
    SteadyTime ask_at;
  };
  static Status secure(Peer& peer, const std::string& pin, net::Loop& loop);
  void ask(const std::shared_ptr<Peer>& peer);
  net::Loop& loop_;
  net::HttpClient& client_;
  std::vector<std::shared_ptr<Peer>> peers_;
  std::set<std::string> warned_;  // tables come often: one warning for each
  ReplicaKey last_key_ = first_key;
};

}  // namespace billow::gateway
