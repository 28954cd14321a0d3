// What the head and a gateway say to each other, over one WebSocket: the head sends the whole table
// whenever something in it changes, the gateway sends wishes and figures. Whole tables, because a
// gateway that has been away must be right after one message, and because it keeps the last one on
// disk to serve from while the head is away.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "core/model/event.h"

namespace billow::gateway {

struct ReplicaRow {
  std::uint64_t job = 0;
  std::uint32_t revision = 0;
  std::string address;     // empty until it has a node
  std::uint16_t port = 0;  // which it has before that
  JobState job_state = JobState::queued;
  TaskState task_state = TaskState::starting;
  bool stopping = false;
  bool spot = false;
  bool resume_wanted = false;                   // asleep, and on its way back
  std::string unsuspendable;                    // why it cannot sleep; empty: it can
  PortHolder port_holder = PortHolder::unsaid;  // who answers on its port, by its node's agent;
                                                // `unsaid`: that one does not look
  std::uint64_t port_look = 0;                  // of the last LookAtReplica that this answers
  bool operator==(const ReplicaRow&) const = default;
  template <class V>
  void fields(V& v) {
    v("job", job);
    v("revision", revision);
    v("address", address);
    v("port", port);
    v("job_state", job_state);
    v("task_state", task_state);
    v("stopping", stopping);
    v("spot", spot);
    v("resume_wanted", resume_wanted);
    v("unsuspendable", unsuspendable);
    v("port_holder", port_holder);
    v("port_look", port_look);
  }
};

// How an endpoint stands in another gateway's hands.
struct Elsewhere {
  std::string region;
  std::uint32_t awake = 0;
  template <class V>
  void fields(V& v) {
    v("region", region);
    v("awake", awake);
  }
};

struct EndpointRow {
  std::string name;
  EndpointPolicy policy;  // of the revision in force
  std::uint32_t serving = 0, rolling = 0;
  std::vector<std::string> keys;  // hashes
  std::uint64_t failed_job = 0;
  std::string failed_reason;
  bool failed_port_taken = false;  // somebody else had its port
  std::string held_back;  // why no replica may be started (a budget, a quota); empty: they may
  std::string waiting;    // why a replica of it has no place yet, when it has waited for a while
  std::vector<ReplicaRow> replicas;  // this gateway's
  bool steered = true;               // whether this gateway may have replicas of it
  std::vector<Elsewhere> elsewhere;  // other gateways that may
  template <class V>
  void fields(V& v) {
    v("steered", steered);
    v("elsewhere", elsewhere);
    v("name", name);
    v("policy", policy);
    v("serving", serving);
    v("rolling", rolling);
    v("keys", keys);
    v("failed_job", failed_job);
    v("failed_reason", failed_reason);
    v("failed_port_taken", failed_port_taken);
    v("held_back", held_back);
    v("waiting", waiting);
    v("replicas", replicas);
  }
};

// Another gateway of the same head, to which requests may be passed on.
struct PeerRow {
  std::string region;
  std::string address;  // HOST:PORT
  std::string key;      // by which it knows its peers
  bool operator==(const PeerRow&) const = default;
  template <class V>
  void fields(V& v) {
    v("region", region);
    v("address", address);
    v("key", key);
  }
};

// A call that waits to be carried out. Whoever carries it out asks for the rest of it: what waits
// does not travel with every table.
struct WaitingCall {
  std::string id;
  std::string endpoint;
  bool operator==(const WaitingCall&) const = default;
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("endpoint", endpoint);
  }
};

struct Table {
  static constexpr const char* kind = "table";
  std::vector<EndpointRow> endpoints;
  std::vector<WaitingCall>
      waiting;  // to be carried out by this gateway: the oldest of each endpoint
  std::vector<PeerRow> peers;
  template <class V>
  void fields(V& v) {
    v("endpoints", endpoints);
    v("waiting", waiting);
    v("peers", peers);
  }
};
// The answer to a message that carried a number: it is durable, or why not.
struct Reply {
  static constexpr const char* kind = "reply";
  std::uint64_t number = 0;
  std::string error;  // empty: done
  std::string code;
  std::string id;  // of a call that was accepted (perhaps an earlier one with the same key)
  std::string hint;
  Json document;   // of a call that was asked for
  AsyncCall call;  // to carry out
  template <class V>
  void fields(V& v) {
    v("number", number);
    v("error", error);
    v("code", code);
    v("id", id);
    v("document", document);
    v("hint", hint);
    v("call", call);
  }
};
// The installation goes down: finish and end.
struct Leave {
  static constexpr const char* kind = "leave";
  template <class V>
  void fields(V&) {}
};
using ToGateway = std::variant<Table, Reply, Leave>;

// One more replica of a revision. The port is the gateway's proposal, so that two heads on one
// machine do not meet.
struct StartReplica {
  static constexpr const char* kind = "start_replica";
  std::string endpoint;
  std::uint32_t revision = 0;
  std::uint16_t port = 0;
  bool spot = false;
  template <class V>
  void fields(V& v) {
    v("endpoint", endpoint);
    v("revision", revision);
    v("port", port);
    v("spot", spot);
  }
};
struct MoveReplica {
  static constexpr const char* kind = "move_replica";
  std::string endpoint;
  std::uint64_t job = 0;
  std::string what;  // "resume", "suspend", "stop"
  std::string reason;
  template <class V>
  void fields(V& v) {
    v("endpoint", endpoint);
    v("job", job);
    v("what", what);
    v("reason", reason);
  }
};
// A connection to a replica failed: who has its port now? The next table has the number, beside the
// answer.
struct LookAtReplica {
  static constexpr const char* kind = "look_at_replica";
  std::string endpoint;
  std::uint64_t job = 0;
  std::uint64_t number = 0;
  template <class V>
  void fields(V& v) {
    v("endpoint", endpoint);
    v("job", job);
    v("number", number);
  }
};
struct AcceptCall {
  static constexpr const char* kind = "accept_call";
  std::uint64_t number = 0;
  AsyncCall call;
  template <class V>
  void fields(V& v) {
    v("number", number);
    v("call", call);
  }
};
// A call is over: answered, failed, or cancelled by its client.
struct EndCall {
  static constexpr const char* kind = "end_call";
  std::uint64_t number = 0;
  AsyncCall call;  // with its answer, without its body
  template <class V>
  void fields(V& v) {
    v("number", number);
    v("call", call);
  }
};
// To carry it out: the whole of a call that waits.
struct TakeCall {
  static constexpr const char* kind = "take_call";
  std::uint64_t number = 0;
  std::string id;
  template <class V>
  void fields(V& v) {
    v("number", number);
    v("id", id);
  }
};
struct AskCall {
  static constexpr const char* kind = "ask_call";
  std::uint64_t number = 0;
  std::string id;
  template <class V>
  void fields(V& v) {
    v("number", number);
    v("id", id);
  }
};

// Figures of one endpoint since the gateway began, and how it stands. Samples: the head keeps the
// newest and journals none.
struct EndpointFigures {
  std::string name;
  std::uint64_t requests = 0, failed = 0, refused = 0, cancelled = 0, retried = 0;
  std::uint64_t cold_starts = 0, wakes = 0;
  std::uint64_t tokens_in = 0, tokens_out = 0;
  std::uint64_t held = 0, in_flight = 0;
  std::uint32_t ready = 0, sleeping = 0, coming = 0, wanted = 0;
  std::int64_t first_byte_p50_us = 0, first_byte_p99_us = 0, held_p99_us = 0, wake_us = 0;
  std::uint64_t recovered_from =
      0;  // the last replica that failed, where another has become healthy since
  template <class V>
  void fields(V& v) {
    v("name", name);
    v("requests", requests);
    v("failed", failed);
    v("refused", refused);
    v("cancelled", cancelled);
    v("retried", retried);
    v("cold_starts", cold_starts);
    v("wakes", wakes);
    v("tokens_in", tokens_in);
    v("tokens_out", tokens_out);
    v("held", held);
    v("in_flight", in_flight);
    v("ready", ready);
    v("sleeping", sleeping);
    v("coming", coming);
    v("wanted", wanted);
    v("first_byte_p50_us", first_byte_p50_us);
    v("first_byte_p99_us", first_byte_p99_us);
    v("held_p99_us", held_p99_us);
    v("wake_us", wake_us);
    v("recovered_from", recovered_from);
  }
};
struct Figures {
  static constexpr const char* kind = "figures";
  std::vector<std::string> addresses;  // where this gateway listens
  std::vector<EndpointFigures> endpoints;
  std::string peer_address, peer_key;  // where and how other gateways reach it; empty: not at all
  template <class V>
  void fields(V& v) {
    v("addresses", addresses);
    v("endpoints", endpoints);
    v("peer_address", peer_address);
    v("peer_key", peer_key);
  }
};
// That a revision is healthy and takes over, or never will be, is said in the words of the event it
// becomes.
using FromGateway = std::variant<StartReplica,
                                 MoveReplica,
                                 LookAtReplica,
                                 RevisionJudged,
                                 AcceptCall,
                                 EndCall,
                                 AskCall,
                                 Figures,
                                 TakeCall>;

}  // namespace billow::gateway
