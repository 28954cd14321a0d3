// The gateway: endpoints behind one proxy. It knows them from the table that the head sends. While
// the head is away, and after its own restart, it continues with the last table, which is in its
// data directory.
//
// With several loops (Proxy::Options::threads), each has its part of the clients' connections. What
// is decided about requests (slots, order, keys, replicas) is decided under one lock (Decision), by
// whichever loop has the occasion. Two rules keep this free of races:
// - A request (Front) is touched by the thread of its loop only. A decision of another loop reaches
//   it by act(), which also checks that it is still the same request.
// - The gateway's own connections (head, health checks, asynchronous calls, other gateways) belong
//   to the first loop; others get there by on_first().
// With one loop there is no lock, and act() and on_first() are plain calls.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gateway/door/acme.h"
#include "gateway/door/certificates.h"
#include "gateway/endpoint.h"
#include "gateway/http2_probe.h"
#include "gateway/keys.h"
#include "gateway/peers.h"
#include "gateway/proxy.h"
#include "gateway/pure/host_names.h"
#include "gateway/pure/model_routes.h"
#include "gateway/pure/ports.h"
#include "gateway/record/access_log.h"
#include "gateway/record/samples.h"
#include "gateway/record/spans.h"
#include "net/http/http_client.h"

namespace billow::gateway {

// Sends the gateway's messages to the head.
class HeadLink {
 public:
  virtual ~HeadLink() = default;
  virtual bool connected() const = 0;
  virtual void say(const FromGateway& message) = 0;
  // A message with an answer; `done` is called once, with an error if the head is unreachable or
  // disconnects.
  virtual void ask(FromGateway message,
                   std::uint64_t number,
                   std::function<void(Result<Reply>)> done) = 0;
};

class Calls;

class Gateway final : public ProxyHost {
 public:
  struct Options {
    Proxy::Options proxy;
    std::string data_dir;   // table.json and access.log; empty: neither is written
    std::string advertise;  // where other gateways reach this one; empty: where it listens
    // Allowed although they are on this machine or its networks.
    std::vector<std::string> webhook_hosts;
    std::string otlp;         // where spans are sent; empty: nowhere
    double trace_sample = 0;  // of the traces that begin here
    std::string sample_to;    // bucket for samples of requests; empty: none are kept
    std::function<Result<s3::Access>()> bucket_access;  // how to reach it
    std::vector<std::string> domains;                   // NAME.DOMAIN leads to endpoint NAME
    std::string certs_dir;                              // certificates for host names; empty: none
    bool insecure_http = false;  // plain HTTP is served to other machines too
    AcmeOptions acme;
    std::string version;  // of the program, for the head's list
  };
  static Result<std::unique_ptr<Gateway>> create(net::Loop& loop, Options options);
  ~Gateway() override;

  void set_link(HeadLink* link);
  bool head_is_here() const;  // from any loop, under the lock
  // A message to the head that it answers; from any loop. `done` runs on the first loop, under the
  // lock.
  void ask_head(FromGateway message, std::uint64_t number, std::function<void(Result<Reply>)> done);
  void take_table(Table table);
  // Serves no endpoint until the next table: the head has expelled this gateway, or has been away
  // for too long.
  void forget_table(const std::string& why);
  void keep_table(const Table& table);  // for a gateway that starts before its head
  Status load_table();                  // the saved one, if any
  Figures figures() const;
  // Reports the state of the endpoints to the head if it has changed: after a deployment the user
  // checks at once.
  void tell_changes();
  Proxy& proxy() { return *proxy_; }
  net::Loop& loop() { return loop_; }
  net::HttpClient& client() { return *client_; }
  net::HttpClient& webhook_client() {
    return *webhook_client_;
  }  // reaches public addresses, and those an admin has allowed
  const std::string& secret() const { return secret_; }
  std::shared_ptr<LiveEndpoint> find(std::string_view name) const;
  std::uint64_t next_number() { return ++last_number_; }
  void stop();
  bool deserted() const;  // no connection is left
  // A successor takes over what comes from now on. What is under way ends here.
  void hand_over();
  void set_on_leave(std::function<void()> fn) { on_leave_ = std::move(fn); }
  void leave() {
    if (on_leave_)
      on_leave_();
  }

  // The gateway's state is this thread's while a Decision exists. What it asks of requests (act) is
  // carried out when the outermost one has ended and the lock is released.
  class Decision {
   public:
    explicit Decision(const Gateway& gateway) : gateway_(const_cast<Gateway&>(gateway)) {
      if (gateway_.several_)
        gateway_.begin_decision();
    }
    ~Decision() {
      if (gateway_.several_)
        gateway_.end_decision();
    }
    Decision(const Decision&) = delete;

   private:
    Gateway& gateway_;
  };
  // Within a Decision: calls `fn` on the request's loop, if it is still this request and waits for
  // its answer; else `otherwise`, which may be missing.
  template <class Fn, class No = std::nullptr_t>
  void act(const std::shared_ptr<Front>& front, RequestId id, Fn fn, No otherwise = nullptr) {
    if (several_)
      acts_.push_back({front, id, std::move(fn), std::move(otherwise)});
    else if (front->active() && front->ticket.id == id)
      fn();
    else if constexpr (!std::is_null_pointer_v<No>)
      otherwise();
  }
  // The same, on the loop of the request.
  void refuse(const std::shared_ptr<Front>& front, net::Response response);
  void respond(const std::shared_ptr<Front>& front, net::Response response);
  // Calls `fn` under the lock on the first loop: at once if this is its thread.
  void on_first(std::function<void()> fn);

  // ---- ProxyHost
  void arrived(const std::shared_ptr<Front>& front) override;
  bool failed(const std::shared_ptr<Front>& front,
              const Failure& failure,
              const std::string& why) override;
  void turned_down(const std::shared_ptr<Front>& front, int status) override;
  bool grown(const std::shared_ptr<Front>& front, std::size_t bytes) override;
  void answer_body_begins(Front& front, std::string_view data) override;
  void body_freed(Front& front) override;
  void over(Front& front, End end) override;
  std::string next_request_id() override;

 private:
  struct Act {
    std::shared_ptr<Front> front;
    RequestId id = 0;
    std::function<void()> fn, otherwise;
    void run() const;
  };
  // A loop beside the first, with its connections.
  struct Lane {
    net::Loop loop;
    std::unique_ptr<Proxy> proxy;
    std::thread thread;
  };
  Gateway(net::Loop& loop, Options options);
  void begin_lanes();
  void end_lanes();
  void each_proxy(const std::function<void(Proxy&)>& fn);  // on its loop
  void begin_decision() {
    mutex_.lock();
    ++depth_;
  }
  void end_decision();
  void say_to_head(FromGateway message);
  Status prepare_certificate();
  Status check_listeners();
  Status begin_acme();
  Result<std::string> webhook_key() const;
  void own_page(const std::shared_ptr<Front>& front);
  // ---- the front door (door/)
  bool refuse_plain(const std::shared_ptr<Front>& front);
  void renew_peer_key(std::uint64_t epoch);
  // The key that a request of another gateway must have.
  const std::string& peer_key_for(const Front& front) const;
  bool refuse_ignorant(const std::shared_ptr<Front>& front, bool by_model);
  bool is_own_call(const Front& front) const;
  void arrived_at(const std::shared_ptr<Front>& front,
                  const std::shared_ptr<LiveEndpoint>& endpoint,
                  std::size_t prefix_bytes);
  void arrived_by_path(const std::shared_ptr<Front>& front);
  void arrived_from_peer(const std::shared_ptr<Front>& front);
  void arrived_by_host(const std::shared_ptr<Front>& front, const HostNames::Found& found);
  void arrived_by_grpc(const std::shared_ptr<Front>& front);
  std::shared_ptr<LiveEndpoint> find_by_host(const HostNames::Found& found) const;
  std::optional<net::Response> check_size(Front& front, const LiveEndpoint& endpoint) const;
  // Requests to /v1/…, which name an endpoint as their model.
  void front_door(const std::shared_ptr<Front>& front);
  void serve_model(const std::shared_ptr<Front>& front, const std::string& model);
  void serve_route(const std::shared_ptr<Front>& front, const ModelRoute& route);
  std::vector<std::string> models_for(Front& front) const;
  WallTime model_made_at(const std::string& name) const;
  // The next endpoint of the request's model serves it; without one it is refused.
  void turn_away(const std::shared_ptr<Front>& front, net::Response response);
  bool next_endpoint(const std::shared_ptr<Front>& front);
  void try_next_endpoint(const std::shared_ptr<Front>& front);  // soon
  void leave_endpoint(Front& front, bool failed);
  void leave_waiting_endpoint(const std::shared_ptr<LiveEndpoint>& endpoint, SteadyTime now);
  static net::Response nobody_left(const Front& front);
  std::vector<std::vector<std::string>> wanted_certificates() const;
  // The caller may call the endpoint. The first bytes of the target are not shown to the replica.
  void serve(const std::shared_ptr<Front>& front,
             const std::shared_ptr<LiveEndpoint>& endpoint,
             std::size_t prefix_bytes);
  // Counts a request for its key. An answer means that a limit refuses it.
  std::optional<net::Response> count_key(Front& front, const LiveEndpoint& endpoint);
  void charge_key(const LiveEndpoint& endpoint, Ticket& ticket, End end);
  // Answers that have begun end with the key that opened them.
  using KeyHash = std::pair<std::string, std::string>;  // its endpoint, and the hash
  void end_streams_of(std::set<KeyHash> keys);
  void end_streams_of_expired();
  void route(const std::shared_ptr<Front>& front, const std::shared_ptr<LiveEndpoint>& endpoint);
  bool read_prompt(const std::shared_ptr<Front>& front,
                   const std::shared_ptr<LiveEndpoint>& endpoint);
  void choose_revision(Front& front, LiveEndpoint& endpoint);
  void load_sticky_secret();
  void wish_for_replica(Front& front, LiveEndpoint& endpoint);
  void give(const std::shared_ptr<Front>& front,
            const std::shared_ptr<LiveEndpoint>& endpoint,
            const std::shared_ptr<Upstream>& upstream);
  // Memory for a request's body until the request ends. False: none is left for its client.
  BodyParty party_of(Front& front) const;
  bool reserve_body(Front& front, std::size_t bytes, bool can_do_without = true);
  void mirror(Front& front, const std::shared_ptr<LiveEndpoint>& endpoint);
  void copy_over(Front& front, End end);
  void judge_replica(LiveEndpoint& endpoint, const Ticket& ticket, End end, SteadyTime now);
  void hold_or_give(const std::shared_ptr<Front>& front,
                    const std::shared_ptr<LiveEndpoint>& endpoint,
                    ReplicaKey avoid);
  void give_out(const std::shared_ptr<LiveEndpoint>& endpoint);
  void hand_to(const std::shared_ptr<LiveEndpoint>& endpoint,
               const std::shared_ptr<Front>& front,
               RequestId id,
               ReplicaKey replica);
  void check_due(const std::shared_ptr<LiveEndpoint>& endpoint);
  bool pass_on(const std::shared_ptr<Front>& front,
               const std::shared_ptr<LiveEndpoint>& endpoint,
               Duration waited);
  bool others_may_serve(const LiveEndpoint& endpoint) const;
  void tick();
  void refuse_hopeless(LiveEndpoint& endpoint, SteadyTime now);
  void free_capacity();
  void give_up_on_ended(SteadyTime now);
  void check_health(const std::shared_ptr<LiveEndpoint>& endpoint,
                    ReplicaKey key,
                    Probe probe = Probe::ready);
  void ask_prometheus(const std::shared_ptr<LiveEndpoint>& endpoint);
  void refuse_held(LiveEndpoint& endpoint, RequestId id, net::Response response);
  Result<std::uint16_t> free_port();
  std::string metrics() const;
  void save_figures();
  void save();
  void tell_successor(bool over);
  void hear_predecessor();

  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  net::Loop& loop_;
  Options options_;
  const bool several_;  // loops
  std::recursive_mutex mutex_;
  std::uint32_t depth_ = 0;  // of Decisions
  std::vector<Act> acts_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // all loops but the first
  HeadLink* link_ = nullptr;                  // of the first loop
  bool head_was_here_ = false;                // for the others
  std::unique_ptr<Proxy> proxy_;
  std::unique_ptr<net::HttpClient> client_, webhook_client_;
  DiskWriter disk_;
  std::unique_ptr<AccessLog> log_;
  std::unique_ptr<Calls> calls_;
  std::unique_ptr<Peers> peers_;
  std::vector<std::shared_ptr<Http2Probe>> probes_;  // health checks under way
  std::unordered_map<std::string, std::shared_ptr<LiveEndpoint>, NameHash, std::equal_to<>>
      endpoints_;
  std::unordered_map<RequestId, std::shared_ptr<Front>> held_;
  ModelRoutes routes_;
  HostNames hosts_;
  std::unordered_map<std::string, RequestLimits, NameHash, std::equal_to<>> limits_;
  std::unique_ptr<Certificates> certificates_;
  std::unique_ptr<Acme> acme_;     // null: no certificates are ordered
  bool own_certificate_ = true;    // no --cert is given
  bool plain_everywhere_ = false;  // requests without TLS are served from everywhere
  Ports ports_;
  Keys keys_;
  Tracer tracer_;
  std::unique_ptr<Samples> samples_;                                     // null: none are kept
  std::unique_ptr<Spans> spans_;                                         // null: not exported
  std::vector<std::pair<SteadyTime, std::shared_ptr<Upstream>>> ended_;  // replicas, since when
  RequestId last_request_ = 0;
  std::atomic<std::uint64_t> last_id_ = 0;
  BodyMemory bodies_;  // for those that are read as a whole, or copied
  std::uint64_t last_number_ = 0;
  std::string id_prefix_, secret_, peer_key_, peer_pin_, sticky_secret_;
  std::string old_peer_key_;  // valid until the others have heard of the new one
  SteadyTime old_peer_key_until_;
  std::uint64_t peer_epoch_ = 0;
  std::string told_;  // the last report to the head: how many replicas of each endpoint are
                      // ready, asleep and starting
  std::string kept_table_, kept_figures_, kept_leaving_;  // as written last
  SteadyTime leaving_kept_at_;
  bool knows_endpoints_ = false;                  // from the head, or from the table that was kept
  std::string forgotten_why_;                     // forget_table(); empty: it has not
  std::map<std::string, EndpointFigures> saved_;  // counters from before this process
  SteadyTime saved_at_;
  WallTime expired_until_ = system_clock().wall();  // streams of keys that expired have ended
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool closing_ = false;
  bool handed_over_ = false;              // the files in the data directory are the successor's
  std::uint64_t predecessor_serves_ = 0;  // requests
  WallTime started_at_;
  std::function<void()> on_leave_;
  net::Timer tick_timer_, certificates_timer_;
};

// Checks whether a client may call an endpoint, and removes the parts of its request meant for the
// gateway. An answer means refusal.
std::optional<net::Response> check_access(Front& front,
                                          const LiveEndpoint& endpoint,
                                          std::string_view secret,
                                          std::string_view peer_key);
// What a request brings as its key.
const OfferedKey& offered_by(Front& front);
// Whether check_access() would refuse it for certain: a fast answer for the many endpoints that are
// not the caller's.
bool cannot_open(Front& front, const LiveEndpoint& endpoint);
// Who sends a request, if requests of one sender belong together (`EndpointPolicy::sticky`); empty:
// it is on its own.
std::string sender_of(const Front& front, std::string_view sticky);
// The answer to a browser's CORS preflight; none: it is not one.
std::optional<net::Response> cors_preflight(Front& front, const EndpointPolicy& policy);

// The path below which endpoints are by their names.
inline constexpr std::string_view endpoint_prefix = "/f/";
// Pages of the gateway at a host name that belongs to an endpoint.
inline constexpr std::string_view own_prefix = "/.well-known/billow";
// The header by which the gateway recognises its own asynchronous calls.
inline constexpr char internal_header[] = "X-Billow-Internal";
inline constexpr char call_header[] = "X-Billow-Call";  // its number
// Fields of such a call: its client when it arrived, and the key that it came with.
inline constexpr char call_client_header[] = "X-Billow-Call-Client";
inline constexpr char call_proto_header[] = "X-Billow-Call-Proto";
inline constexpr char call_key_header[] = "X-Billow-Call-Key";
inline constexpr char call_key_endpoint_header[] = "X-Billow-Call-Key-Endpoint";

// More wait for the lock around decisions most of their time.
inline constexpr std::int64_t threads_max = 16;

struct GatewayOptions {
  std::vector<std::string> listen = {"127.0.0.1:7071"};
  net::TlsServerOptions tls;
  std::string data_dir;
  std::string head;  // unix:…, http://…; empty: only the endpoints in `serve`
  std::string token_path;
  net::TlsClientOptions head_tls;       // how to verify an https:// head
  std::string client_cert, client_key;  // to show it; empty: the head issues one
  std::string region;                   // of the replicas it controls
  std::string advertise;
  std::vector<std::string> webhook_hosts;
  std::string otlp;
  double trace_sample = 1;
  std::string sample_to;
  std::function<Result<s3::Access>()> bucket_access;
  std::vector<std::string> domains;
  std::string certs_dir;
  std::vector<std::string> trusted_proxies;
  bool insecure_http = false;
  AcmeOptions acme;
  std::uint32_t sample = 0;        // of the endpoints in `serve`, in thousandths
  std::vector<std::string> serve;  // NAME=HOST:PORT[,HOST:PORT]: fixed endpoints without a head
  bool listen_any_port_if_taken = false;
  bool take_over = false;  // of the gateway that runs in the data directory, if one does
  std::size_t threads = 1;
  std::string version;  // of the program
};
// Runs until a signal.
Status run_gateway(GatewayOptions options);

}  // namespace billow::gateway
