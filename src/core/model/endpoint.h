// Serverless endpoints as values: deployed revisions and their asynchronous calls. Replicas are
// jobs: their numbers, states and costs are those of the jobs, and a label names their endpoint.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "core/model/job.h"

namespace billow {

// Labels that only Billow sets; a submission with one of them is refused.
inline constexpr char label_prefix[] = "billow.";
inline constexpr char label_endpoint[] = "billow.endpoint";
inline constexpr char label_revision[] = "billow.revision";
inline constexpr char label_port[] = "billow.port";
// The region whose gateway it was started for.
inline constexpr char label_region[] = "billow.region";

enum class EndpointAccess {
  local,  // clients on the gateway's own machine; others need a key
  key,    // everybody needs a key
  open,   // nobody does
};
BILLOW_ENUM_NAMES(EndpointAccess,
                  {EndpointAccess::local, "local"},
                  {EndpointAccess::key, "key"},
                  {EndpointAccess::open, "open"});

// What replicas speak. Clients of the gateway choose for themselves.
enum class EndpointProtocol {
  http1,
  h2,    // HTTP/2 without TLS, with prior knowledge
  grpc,  // the same; health is asked by the gRPC health protocol
};
BILLOW_ENUM_NAMES(EndpointProtocol,
                  {EndpointProtocol::http1, "http1"},
                  {EndpointProtocol::h2, "h2"},
                  {EndpointProtocol::grpc, "grpc"});

enum class EndpointBalance {
  automatic,      // the least busy of the replicas that the load needs
  prefix,         // the replica that last saw the same beginning of a prompt, unless it is too busy
  spread,         // the least busy of all that are awake
  pack,           // the fullest that has a free slot, so that the others can sleep
  least_latency,  // the one that answers soonest, by its latency and its requests
};
BILLOW_ENUM_NAMES(EndpointBalance,
                  {EndpointBalance::automatic, "auto"},
                  {EndpointBalance::prefix, "prefix"},
                  {EndpointBalance::spread, "spread"},
                  {EndpointBalance::pack, "pack"},
                  {EndpointBalance::least_latency, "least-latency"});

// How a new revision replaces the old one.
enum class RolloutStrategy {
  automatic,  // rolling, or recreate if the new revision does not fit beside the old one
  rolling,    // the new one starts beside the old one
  recreate,   // the old one is stopped first; requests wait
};
BILLOW_ENUM_NAMES(RolloutStrategy,
                  {RolloutStrategy::automatic, "auto"},
                  {RolloutStrategy::rolling, "rolling"},
                  {RolloutStrategy::recreate, "recreate"});

// What a call costs its key. Only keys are charged; the replicas' own cost is in the ledger.
struct EndpointPrices {
  NanoUsd request;
  NanoUsd million_tokens_in, million_tokens_out;
  bool any() const { return *this != EndpointPrices{}; }
  bool operator==(const EndpointPrices&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("request", s.request);
    v("million_tokens_in", s.million_tokens_in);
    v("million_tokens_out", s.million_tokens_out);
  }
};

// How the health of replicas is asked for, besides `EndpointPolicy::health` (readiness) and
// `start_timeout`.
struct EndpointProbes {
  Duration period = seconds(5);
  Duration timeout = seconds(5);
  std::uint32_t threshold = 3;  // failures in a row
  // A path that answers 2xx as long as the replica works at all; one that fails is replaced. Empty:
  // a replica is replaced if its readiness fails for long.
  std::string live;
  // A path that answers 2xx when the replica has started; the others are asked after that. Empty:
  // readiness alone is asked.
  std::string start;
  bool operator==(const EndpointProbes&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("period_ns", s.period);
    v("timeout_ns", s.timeout);
    v("threshold", s.threshold);
    v("live", s.live);
    v("start", s.start);
  }
};

struct EndpointRollout {
  RolloutStrategy strategy = RolloutStrategy::automatic;
  Duration drain;  // how long a leaving replica may finish its requests; 0: without limit
  bool operator==(const EndpointRollout&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("strategy", s.strategy);
    v("drain_ns", s.drain);
  }
};

// A query to Prometheus: one replica is awake for each `target` of its value.
struct EndpointQuery {
  std::string url;  // of Prometheus, http(s)://HOST[:PORT]
  std::string query;
  double target = 1;
  bool any() const { return !query.empty(); }
  bool operator==(const EndpointQuery&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("url", s.url);
    v("query", s.query);
    v("target", s.target);
  }
};

// What decides about the number of replicas besides requests.
struct EndpointScaling {
  std::vector<std::string> min_at;  // "Mon-Fri 08:00-18:00=2" (timed_min.h), in UTC
  NanoUsd spend_per_hour;           // limit for all replicas together; 0: none
  std::uint64_t target_tokens = 0;  // tokens in flight per replica; 0: requests decide
  EndpointQuery query;
  bool predict = false;  // wakes replicas before the load of earlier days returns
  bool operator==(const EndpointScaling&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("min_at", s.min_at);
    v("spend_per_hour", s.spend_per_hour);
    v("target_tokens", s.target_tokens);
    v("query", s.query);
    v("predict", s.predict);
  }
};

// How an endpoint scales, who may call it, and its time limits.
struct EndpointPolicy {
  std::uint32_t min = 0;
  std::uint32_t max = 1;
  std::uint32_t concurrency = 8;  // concurrent requests per replica; 0: no limit
  // From a request to the first byte of its answer, including the wake-up.
  Duration timeout = seconds(60);
  Duration idle = minutes(2);          // until the last replica sleeps
  Duration keep_suspended = hours(1);  // until a suspended replica is stopped; 0: never suspend
  Duration wait_target = milliseconds(500);  // the longest time that a request should wait
  Duration start_timeout = minutes(10);      // until a started replica must be healthy
  std::uint32_t base_on_demand = 0;          // with spot: the number that are not spot
  bool spot = false;
  // A path that answers 2xx when the replica can serve; empty: any answer counts.
  std::string health;
  std::uint32_t queue_max = 1000;
  EndpointAccess access = EndpointAccess::local;
  std::vector<std::string> cors;  // origins; "*" for any
  // Replicas run in these, each serving the nearest requests; empty: anywhere.
  std::vector<std::string> regions;
  std::string webhook;  // called when an asynchronous call has ended
  EndpointProtocol protocol = EndpointProtocol::http1;
  EndpointBalance balance = EndpointBalance::automatic;
  // Which requests belong together and get the same replica, and the same revision while a canary
  // runs: "client" (its key or address), "header:NAME" or "cookie:NAME"; "cookie": those with the
  // cookie that the gateway sets. Empty: each request is on its own.
  std::string sticky;
  EndpointPrices prices;
  std::uint32_t sample = 0;  // thousandths of the requests that are kept with their bodies
  EndpointProbes probes;
  EndpointRollout rollout;
  EndpointScaling scaling;

  bool operator==(const EndpointPolicy&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("min", s.min);
    v("max", s.max);
    v("concurrency", s.concurrency);
    v("timeout_ns", s.timeout);
    v("idle_ns", s.idle);
    v("keep_suspended_ns", s.keep_suspended);
    v("wait_target_ns", s.wait_target);
    v("start_timeout_ns", s.start_timeout);
    v("base_on_demand", s.base_on_demand);
    v("spot", s.spot);
    v("health", s.health);
    v("queue_max", s.queue_max);
    v("access", s.access);
    v("cors", s.cors);
    v("webhook", s.webhook);
    v("regions", s.regions);
    v("protocol", s.protocol);
    v("balance", s.balance);
    v("sticky", s.sticky);
    v("prices", s.prices);
    v("sample", s.sample);
    v("probes", s.probes);
    v("rollout", s.rollout);
    v("scaling", s.scaling);
  }
};

// When a canary ends by itself because it is worse than the old revision.
enum class ReleaseGuard {
  on,      // more errors, or slower
  errors,  // more errors
  off,
};
BILLOW_ENUM_NAMES(ReleaseGuard,
                  {ReleaseGuard::on, "on"},
                  {ReleaseGuard::errors, "errors"},
                  {ReleaseGuard::off, "off"});

// The part of the requests that a new revision gets beside the old one. Parts are in thousandths.
struct ReleasePlan {
  std::uint32_t traffic = 0;
  std::uint32_t mirror = 0;  // copied to it; its answers are dropped
  bool mirror_post = false;  // POST too
  ReleaseGuard guard = ReleaseGuard::on;
  bool any() const { return traffic > 0 || mirror > 0; }
  bool operator==(const ReleasePlan&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("traffic", s.traffic);
    v("mirror", s.mirror);
    v("mirror_post", s.mirror_post);
    v("guard", s.guard);
  }
};

enum class RevisionState {
  rolling,  // starting; the previous one serves meanwhile
  serving,
  retired,      // replaced; a rollback can restore it
  failed,       // it never became healthy, and never served
  canary,       // serves a part of the requests beside the serving one
  rolled_back,  // a canary that has ended
};
BILLOW_ENUM_NAMES(RevisionState,
                  {RevisionState::rolling, "rolling"},
                  {RevisionState::serving, "serving"},
                  {RevisionState::retired, "retired"},
                  {RevisionState::failed, "failed"},
                  {RevisionState::canary, "canary"},
                  {RevisionState::rolled_back, "rolled_back"});

struct Revision {
  std::uint32_t number = 0;
  std::shared_ptr<const JobSpec> spec;
  EndpointPolicy policy;
  WallTime made_at;
  RevisionState state = RevisionState::rolling;
  std::string reason;   // why it failed
  JobId failed_job;     // the replica that failed; see its log
  UserId user;          // who deployed it, and whom its replicas run as; 0: the endpoint's user
  TokenId agent;        // the agent token that deployed it and pays for its replicas; 0: none
  ReleasePlan release;  // of a canary; otherwise it takes over as soon as it is healthy
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("spec", s.spec);
    v("policy", s.policy);
    v("made_at_ns", s.made_at);
    v("state", s.state);
    v("reason", s.reason);
    v("failed_job", s.failed_job);
    v("user", s.user);
    v("agent", s.agent);
    v("release", s.release);
  }
};

enum class LimitOf { requests, tokens, usd };
BILLOW_ENUM_NAMES(LimitOf,
                  {LimitOf::requests, "requests"},
                  {LimitOf::tokens, "tokens"},
                  {LimitOf::usd, "usd"});
enum class LimitPer { minute, hour, day };
BILLOW_ENUM_NAMES(LimitPer,
                  {LimitPer::minute, "min"},
                  {LimitPer::hour, "hour"},
                  {LimitPer::day, "day"});

struct KeyLimit {
  LimitOf of = LimitOf::requests;
  LimitPer per = LimitPer::minute;
  std::int64_t amount = 0;  // requests, tokens or nano-dollars
  bool operator==(const KeyLimit&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("of", s.of);
    v("per", s.per);
    v("amount", s.amount);
  }
};

struct EndpointKey {
  std::string name;
  std::string hash;  // SHA-256, hex: the key itself is shown once
  WallTime made_at;
  ProjectId project;    // that its usage is reported for; 0: the endpoint's
  WallTime expires_at;  // 0: never
  std::vector<KeyLimit> limits;
  bool operator==(const EndpointKey&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("hash", s.hash);
    v("made_at_ns", s.made_at);
    v("project", s.project);
    v("expires_at_ns", s.expires_at);
    v("limits", s.limits);
  }
};

// What a key has used on one day (UTC) through one gateway.
struct KeyUse {
  std::int64_t day = 0;  // since 1970
  std::string endpoint, key;
  std::string gateway;  // its own number: each counts for itself
  ProjectId project;
  std::uint64_t requests = 0, refused = 0, tokens_in = 0, tokens_out = 0;
  NanoUsd charge;
  auto id() const { return std::tie(day, endpoint, key, gateway); }
  bool operator==(const KeyUse&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("day", s.day);
    v("endpoint", s.endpoint);
    v("key", s.key);
    v("gateway", s.gateway);
    v("project", s.project);
    v("requests", s.requests);
    v("refused", s.refused);
    v("tokens_in", s.tokens_in);
    v("tokens_out", s.tokens_out);
    v("charge", s.charge);
  }
};
struct ByKeyUse {
  bool operator()(const KeyUse& a, const KeyUse& b) const { return a.id() < b.id(); }
};

// What one gateway has counted of an endpoint's requests, for as long as both exist. It never
// falls: the counts of a gateway that has gone stay.
struct EndpointCount {
  std::string endpoint;
  std::string gateway;  // its own number; empty: of gateways that went long ago, together
  WallTime at;          // of the last change
  std::uint64_t requests = 0, failed = 0, refused = 0, cancelled = 0, retried = 0, limited = 0;
  std::uint64_t cold_starts = 0, wakes = 0, left_out = 0;
  std::uint64_t mirrored = 0, not_mirrored = 0;
  std::uint64_t tokens_in = 0, tokens_out = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("gateway", s.gateway);
    v("at_ns", s.at);
    v("requests", s.requests);
    v("failed", s.failed);
    v("refused", s.refused);
    v("cancelled", s.cancelled);
    v("retried", s.retried);
    v("limited", s.limited);
    v("cold_starts", s.cold_starts);
    v("wakes", s.wakes);
    v("left_out", s.left_out);
    v("mirrored", s.mirrored);
    v("not_mirrored", s.not_mirrored);
    v("tokens_in", s.tokens_in);
    v("tokens_out", s.tokens_out);
  }
};
inline constexpr std::uint64_t EndpointCount::*endpoint_counters[] = {
    &EndpointCount::requests,    &EndpointCount::failed,       &EndpointCount::refused,
    &EndpointCount::cancelled,   &EndpointCount::retried,      &EndpointCount::limited,
    &EndpointCount::cold_starts, &EndpointCount::wakes,        &EndpointCount::left_out,
    &EndpointCount::mirrored,    &EndpointCount::not_mirrored, &EndpointCount::tokens_in,
    &EndpointCount::tokens_out,
};

struct Endpoint {
  std::string name;
  ProjectId project;
  UserId user;
  WallTime made_at;
  std::uint32_t next_revision = 1;
  std::uint32_t serving = 0;        // a revision's number; 0: none has been healthy yet
  std::uint32_t rolling = 0;        // starting; 0: none
  std::vector<Revision> revisions;  // oldest first
  std::vector<EndpointKey> keys;
  JobId failed_job;  // the last replica that failed by itself, and why
  std::string failed_reason;
  bool failed_port_taken = false;  // another process had its port: the next one gets another port
  NanoUsd replicas_cost;           // of the replicas that have ended
  std::uint32_t canary = 0;        // serves a part of the requests; 0: none
  std::vector<EndpointCount> counts;  // one for each gateway that has reported

  const Revision* revision(std::uint32_t number) const {
    for (const Revision& r : revisions)
      if (r.number == number)
        return &r;
    return nullptr;
  }
  // The revision in force: the serving one, or the first while none serves.
  const Revision* current() const { return revision(serving != 0 ? serving : rolling); }
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("project", s.project);
    v("user", s.user);
    v("made_at_ns", s.made_at);
    v("next_revision", s.next_revision);
    v("serving", s.serving);
    v("rolling", s.rolling);
    v("revisions", s.revisions);
    v("keys", s.keys);
    v("failed_job", s.failed_job);
    v("failed_reason", s.failed_reason);
    v("replicas_cost", s.replicas_cost);
    v("failed_port_taken", s.failed_port_taken);
    v("canary", s.canary);
    v("counts", s.counts);
  }
};

enum class CallState { waiting, done, failed, cancelled };
BILLOW_ENUM_NAMES(CallState,
                  {CallState::waiting, "waiting"},
                  {CallState::done, "done"},
                  {CallState::failed, "failed"},
                  {CallState::cancelled, "cancelled"});

// A call accepted with 202: it is executed at least once, and its answer is kept for a time.
struct AsyncCall {
  std::string id;  // unguessable: anyone who has it can fetch the answer
  std::string endpoint;
  std::string method;
  std::string target;  // below the endpoint
  std::map<std::string, std::string> headers;
  std::string body;  // base64
  std::string idempotency_key;
  WallTime made_at;
  CallState state = CallState::waiting;
  std::int32_t status = 0;  // of the answer
  std::map<std::string, std::string> answer_headers;
  std::string answer;  // base64
  std::string reason;  // why it failed
  WallTime ended_at;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("endpoint", s.endpoint);
    v("method", s.method);
    v("target", s.target);
    v("headers", s.headers);
    v("body", s.body);
    v("idempotency_key", s.idempotency_key);
    v("made_at_ns", s.made_at);
    v("state", s.state);
    v("status", s.status);
    v("answer_headers", s.answer_headers);
    v("answer", s.answer);
    v("reason", s.reason);
    v("ended_at_ns", s.ended_at);
  }
};

}  // namespace billow
