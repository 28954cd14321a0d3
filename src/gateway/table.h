// The messages between the head and a gateway, over one WebSocket: the head sends the whole table
// whenever something in it changes, the gateway sends requests and figures. Whole tables, so that
// one message brings a gateway up to date after a disconnect, and because it keeps the last one on
// disk to serve from while the head is away.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/exposition.h"
#include "base/json.h"
#include "core/model/event.h"

namespace billow::gateway {

struct ReplicaRow {
  std::uint64_t job = 0;
  std::uint32_t revision = 0;
  std::string address;     // empty until it has a node
  std::uint16_t port = 0;  // known before the address
  JobState job_state = JobState::queued;
  TaskState task_state = TaskState::starting;
  bool stopping = false;
  bool spot = false;
  bool resume_wanted = false;  // suspended and about to resume
  std::string unsuspendable;   // why it cannot be suspended; empty: it can
  // Who listens on its port, according to its node's agent;.
  PortHolder port_holder = PortHolder::unsaid;
  // `unsaid`: the agent does not check
  std::uint64_t port_look = 0;  // number of the last LookAtReplica that this answers
  bool operator==(const ReplicaRow&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("job", s.job);
    v("revision", s.revision);
    v("address", s.address);
    v("port", s.port);
    v("job_state", s.job_state);
    v("task_state", s.task_state);
    v("stopping", s.stopping);
    v("spot", s.spot);
    v("resume_wanted", s.resume_wanted);
    v("unsuspendable", s.unsuspendable);
    v("port_holder", s.port_holder);
    v("port_look", s.port_look);
  }
};

// What people should know of a replica that runs and listens nowhere; empty: it listens, or that is
// not known.
std::string not_listening(const ReplicaRow& replica);

// The state of an endpoint at another gateway.
struct Elsewhere {
  std::string region;
  std::uint32_t awake = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("region", s.region);
    v("awake", s.awake);
  }
};

// A key that opens an endpoint.
struct KeyRow {
  std::string name;
  std::string hash;
  WallTime expires_at;
  std::vector<KeyLimit> limits;
  KeyUse elsewhere;  // what other gateways have let it use on `elsewhere.day`
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("hash", s.hash);
    v("expires_at_ns", s.expires_at);
    v("limits", s.limits);
    v("elsewhere", s.elsewhere);
  }
};

struct EndpointRow {
  std::string name;
  EndpointPolicy policy;  // of the revision in force
  std::uint32_t serving = 0, rolling = 0;
  std::vector<std::string> keys;  // hashes, for gateways that do not know `key_rows`
  std::uint64_t failed_job = 0;
  std::string failed_reason;
  bool failed_port_taken = false;  // another process had its port
  std::string held_back;  // why no replica may be started (a budget, a quota); empty: they may
  std::string waiting;    // why a replica is not placed yet, if it has waited for a while
  std::vector<ReplicaRow> replicas;  // this gateway's
  bool steered = true;               // whether this gateway may have replicas of it
  std::vector<Elsewhere> elsewhere;  // other gateways that may
  std::string account;               // the Unix account of its owner, for access `local`
  std::uint32_t canary = 0;          // a revision that gets a part of the requests; 0: none
  ReleasePlan release;               // of the canary, or of the one that starts
  std::vector<KeyRow> key_rows;
  EndpointPolicy rolling_policy;  // of the revision that starts, if another one serves
  // Why the revision that starts does not fit beside the serving one, though it would fit in its
  // place; empty: it fits, or that is not known.
  std::string no_room;
  std::uint32_t awake_max = UINT32_MAX;  // replicas that its limit of spending pays for
  std::string awake_max_why;
  WallTime deployed_at;  // the revision in force
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("steered", s.steered);
    v("elsewhere", s.elsewhere);
    v("name", s.name);
    v("policy", s.policy);
    v("serving", s.serving);
    v("rolling", s.rolling);
    v("keys", s.keys);
    v("failed_job", s.failed_job);
    v("failed_reason", s.failed_reason);
    v("failed_port_taken", s.failed_port_taken);
    v("held_back", s.held_back);
    v("waiting", s.waiting);
    v("replicas", s.replicas);
    v("account", s.account);
    v("canary", s.canary);
    v("release", s.release);
    v("key_rows", s.key_rows);
    v("rolling_policy", s.rolling_policy);
    v("no_room", s.no_room);
    v("awake_max", s.awake_max);
    v("awake_max_why", s.awake_max_why);
    v("deployed_at_ns", s.deployed_at);
  }
};

// Another gateway of the same head, to which requests may be passed on.
struct PeerRow {
  std::string region;
  std::string address;  // HOST:PORT
  std::string key;      // its credential for peers
  bool operator==(const PeerRow&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("region", s.region);
    v("address", s.address);
    v("key", s.key);
  }
};

// A call that waits to be executed. The gateway fetches the rest when it executes it: bodies do not
// travel with every table.
struct WaitingCall {
  std::string id;
  std::string endpoint;
  bool operator==(const WaitingCall&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("endpoint", s.endpoint);
  }
};

struct Table {
  static constexpr const char* kind = "table";
  std::vector<EndpointRow> endpoints;
  std::vector<WaitingCall> waiting;  // to be executed by this gateway: the oldest of each endpoint
  std::vector<PeerRow> peers;
  FrontDoorImage door;
  // Another number: a gateway has gone or was expelled, and must not be taken for a peer any more.
  std::uint64_t peer_epoch = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoints", s.endpoints);
    v("waiting", s.waiting);
    v("peers", s.peers);
    v("door", s.door);
    v("peer_epoch", s.peer_epoch);
  }
};
// The answer to a numbered message: it is durable, or an error.
struct Reply {
  static constexpr const char* kind = "reply";
  std::uint64_t number = 0;
  std::string error;  // empty: done
  std::string code;
  std::string id;  // of an accepted call (perhaps an earlier one with the same key)
  std::string hint;
  Json document;   // of a requested call
  AsyncCall call;  // to execute
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("error", s.error);
    v("code", s.code);
    v("id", s.id);
    v("document", s.document);
    v("hint", s.hint);
    v("call", s.call);
  }
};
// The installation shuts down: finish and exit.
struct Leave {
  static constexpr const char* kind = "leave";
  template <class S, class V>
  static constexpr void fields(S&, V&) {}
};
// Asks for Heard, which follows what was sent before.
struct Ask {
  static constexpr const char* kind = "ask";
  std::uint64_t number = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
  }
};
using ToGateway = std::variant<Table, Reply, Leave, Ask>;

// Requests one more replica of a revision. The gateway proposes the port, so that two heads on one
// machine do not collide.
struct StartReplica {
  static constexpr const char* kind = "start_replica";
  std::string endpoint;
  std::uint32_t revision = 0;
  std::uint16_t port = 0;
  bool spot = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("revision", s.revision);
    v("port", s.port);
    v("spot", s.spot);
  }
};
struct MoveReplica {
  static constexpr const char* kind = "move_replica";
  std::string endpoint;
  std::uint64_t job = 0;
  std::string what;  // "resume", "suspend", "stop"
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("job", s.job);
    v("what", s.what);
    v("reason", s.reason);
  }
};
// A connection to a replica failed: who has its port now? The next table contains this number
// beside the answer.
struct LookAtReplica {
  static constexpr const char* kind = "look_at_replica";
  std::string endpoint;
  std::uint64_t job = 0;
  std::uint64_t number = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("job", s.job);
    v("number", s.number);
  }
};
struct AcceptCall {
  static constexpr const char* kind = "accept_call";
  std::uint64_t number = 0;
  AsyncCall call;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("call", s.call);
  }
};
// A call has ended: answered, failed, or cancelled by its client.
struct EndCall {
  static constexpr const char* kind = "end_call";
  std::uint64_t number = 0;
  AsyncCall call;  // with its answer, without its body
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("call", s.call);
  }
};
// Fetches a waiting call completely, to execute it.
struct TakeCall {
  static constexpr const char* kind = "take_call";
  std::uint64_t number = 0;
  std::string id;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("id", s.id);
  }
};
struct AskCall {
  static constexpr const char* kind = "ask_call";
  std::uint64_t number = 0;
  std::string id;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("id", s.id);
  }
};

// Everything that was sent before this Ask is in force.
struct Heard {
  static constexpr const char* kind = "heard";
  std::uint64_t number = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
  }
};

// One of the two revisions while a canary runs, since it began.
struct RevisionFigures {
  std::uint32_t revision = 0;
  std::uint64_t requests = 0, errors = 0;
  std::int64_t first_byte_p95_us = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("revision", s.revision);
    v("requests", s.requests);
    v("errors", s.errors);
    v("first_byte_p95_us", s.first_byte_p95_us);
  }
};

// Figures of one endpoint since the gateway began, and its state. Samples: the head keeps the
// newest and journals none.
struct EndpointFigures {
  std::string name;
  std::uint64_t requests = 0, failed = 0, refused = 0, cancelled = 0, retried = 0;
  std::uint64_t cold_starts = 0, wakes = 0;
  std::uint64_t tokens_in = 0, tokens_out = 0;
  std::uint64_t held = 0, in_flight = 0;
  std::uint32_t ready = 0, sleeping = 0, coming = 0, wanted = 0;
  std::int64_t first_byte_p50_us = 0, first_byte_p99_us = 0, held_p99_us = 0, wake_us = 0;
  std::int64_t first_byte_p95_us = 0;
  std::uint64_t left_out = 0;        // how often a sick replica was taken out of service
  std::uint64_t recovered_from = 0;  // the last failed replica, if another has become healthy since
  std::uint64_t mirrored = 0,
                not_mirrored = 0;          // copies sent to a canary, and those it had no time for
  std::uint64_t limited = 0;               // requests refused because of a limit of their key
  std::vector<RevisionFigures> revisions;  // the serving one and the canary, if there is one
  billow::Histogram first_byte;            // since the gateway started, with traces as exemplars
  std::vector<std::string> notes;          // what its owner should know, as sentences
  // Of DailyPattern, for the gateway's own file.
  std::vector<double> daily_peaks;
  std::uint32_t serving = 0, canary = 0;  // the revisions whose replicas and settings it uses
  std::uint32_t sick = 0;  // replicas; those that get requests nevertheless count as ready, too
  NativeBuckets first_byte_native;  // the durations of `first_byte`, in finer buckets
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("requests", s.requests);
    v("failed", s.failed);
    v("refused", s.refused);
    v("cancelled", s.cancelled);
    v("retried", s.retried);
    v("cold_starts", s.cold_starts);
    v("wakes", s.wakes);
    v("tokens_in", s.tokens_in);
    v("tokens_out", s.tokens_out);
    v("held", s.held);
    v("in_flight", s.in_flight);
    v("ready", s.ready);
    v("sleeping", s.sleeping);
    v("coming", s.coming);
    v("wanted", s.wanted);
    v("first_byte_p50_us", s.first_byte_p50_us);
    v("first_byte_p99_us", s.first_byte_p99_us);
    v("first_byte_p95_us", s.first_byte_p95_us);
    v("held_p99_us", s.held_p99_us);
    v("wake_us", s.wake_us);
    v("left_out", s.left_out);
    v("recovered_from", s.recovered_from);
    v("mirrored", s.mirrored);
    v("not_mirrored", s.not_mirrored);
    v("limited", s.limited);
    v("revisions", s.revisions);
    v("first_byte", s.first_byte);
    v("notes", s.notes);
    v("daily_peaks", s.daily_peaks);
    v("serving", s.serving);
    v("canary", s.canary);
    v("sick", s.sick);
    v("first_byte_native", s.first_byte_native);
  }
};
struct Figures {
  static constexpr const char* kind = "figures";
  std::vector<std::string> addresses;  // where this gateway listens
  std::vector<EndpointFigures> endpoints;
  std::string peer_address, peer_key;  // where and how other gateways reach it; empty: not at all
  std::vector<KeyUse> keys;            // of today and the day before
  std::string gateway;                 // the number under which it counts them
  std::vector<std::string> domains;    // its own: --domain
  std::string version, host;           // of the program, and the machine's name
  WallTime started_at;
  std::uint32_t loops = 0;
  std::uint64_t connections = 0;  // of clients
  bool leaving = false;           // it ends when its last request has ended
  std::uint64_t handed_over = 0;  // requests that its predecessor still serves
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("addresses", s.addresses);
    v("endpoints", s.endpoints);
    v("peer_address", s.peer_address);
    v("peer_key", s.peer_key);
    v("keys", s.keys);
    v("gateway", s.gateway);
    v("domains", s.domains);
    v("version", s.version);
    v("host", s.host);
    v("started_at_ns", s.started_at);
    v("loops", s.loops);
    v("connections", s.connections);
    v("leaving", s.leaving);
    v("handed_over", s.handed_over);
  }
};

// Who has connected, by its request to the head.
struct Dialled {
  std::string region;
  std::string name;  // of its token
  bool own = false;  // the head has started it
};
// A gateway as the head lists it: what it has reported, and since when.
struct GatewayRow : Dialled {
  std::string id;  // the number under which it counts
  std::string version, host;
  std::vector<std::string> addresses;
  bool connected = true, steers = false, leaving = false;
  WallTime started_at, connected_at, seen_at;
  std::uint32_t loops = 0;
  std::uint64_t connections = 0, in_flight = 0, requests = 0, handed_over = 0;
  double requests_per_s = 0;
  std::map<std::string, EndpointFigures> figures;  // of its endpoints
};

// A gateway reports that a revision is healthy and takes over, or has failed, with the event that
// it becomes.
using FromGateway = std::variant<StartReplica,
                                 MoveReplica,
                                 LookAtReplica,
                                 RevisionJudged,
                                 AcceptCall,
                                 EndCall,
                                 AskCall,
                                 Figures,
                                 TakeCall,
                                 Heard>;

}  // namespace billow::gateway
