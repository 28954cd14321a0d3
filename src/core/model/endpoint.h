// Serverless endpoints as values: what was deployed, in revisions, and the asynchronous calls to
// them. Replicas are jobs: their numbers, states and costs are the jobs' own, and a label of ours
// says whose they are.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "core/model/job.h"

namespace billow {

// Labels that only Billow gives; a submission that brings one is refused.
inline constexpr char label_prefix[] = "billow.";
inline constexpr char label_endpoint[] = "billow.endpoint";
inline constexpr char label_revision[] = "billow.revision";
inline constexpr char label_port[] = "billow.port";
inline constexpr char label_region[] = "billow.region";  // whose gateway it was started for

enum class EndpointAccess {
  local,  // clients on the gateway's own machine; others need a key
  key,    // everybody needs a key
  open,   // nobody does
};
BILLOW_ENUM_NAMES(EndpointAccess,
                  {EndpointAccess::local, "local"},
                  {EndpointAccess::key, "key"},
                  {EndpointAccess::open, "open"});

// How an endpoint scales, whom it serves, and how long things may take.
struct EndpointPolicy {
  std::uint32_t min = 0;
  std::uint32_t max = 1;
  std::uint32_t concurrency = 8;       // requests at once for one replica; 0: no limit
  Duration timeout = seconds(60);      // from a request to its answer's first byte, waking included
  Duration idle = minutes(2);          // until the last replica sleeps
  Duration keep_suspended = hours(1);  // until a sleeper is stopped; 0: never suspend
  Duration wait_target = milliseconds(500);  // how long a request should be held at most
  Duration start_timeout = minutes(10);      // until a started replica must be healthy
  std::uint32_t base_on_demand = 0;          // with spot: so many are not
  bool spot = false;
  std::string
      health;  // a path that answers 2xx when the replica can serve; empty: any answer will do
  std::uint32_t queue_max = 1000;
  EndpointAccess access = EndpointAccess::local;
  std::vector<std::string> cors;  // origins; "*" for any
  std::vector<std::string>
      regions;  // its replicas stand in these, each for the requests nearest to it; empty: anywhere
  std::string webhook;  // told when an asynchronous call is over

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
  }
};

enum class RevisionState {
  rolling,  // being brought up; the one before serves meanwhile
  serving,
  retired,  // another took over; it can be rolled back to
  failed,   // it never became healthy, and never served
};
BILLOW_ENUM_NAMES(RevisionState,
                  {RevisionState::rolling, "rolling"},
                  {RevisionState::serving, "serving"},
                  {RevisionState::retired, "retired"},
                  {RevisionState::failed, "failed"});

struct Revision {
  std::uint32_t number = 0;
  std::shared_ptr<const JobSpec> spec;
  EndpointPolicy policy;
  WallTime made_at;
  RevisionState state = RevisionState::rolling;
  std::string reason;  // why it failed
  JobId failed_job;    // and the replica that did, whose log may say more
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("spec", s.spec);
    v("policy", s.policy);
    v("made_at_ns", s.made_at);
    v("state", s.state);
    v("reason", s.reason);
    v("failed_job", s.failed_job);
  }
};

struct EndpointKey {
  std::string name;
  std::string hash;  // SHA-256, hex: the key itself is shown once
  WallTime made_at;
  bool operator==(const EndpointKey&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("hash", s.hash);
    v("made_at_ns", s.made_at);
  }
};

struct Endpoint {
  std::string name;
  ProjectId project;
  UserId user;
  WallTime made_at;
  std::uint32_t next_revision = 1;
  std::uint32_t serving = 0;        // a revision's number; 0: none has been healthy yet
  std::uint32_t rolling = 0;        // being brought up; 0: none
  std::vector<Revision> revisions;  // oldest first
  std::vector<EndpointKey> keys;
  JobId failed_job;  // the last replica that ended by its own doing, and why
  std::string failed_reason;
  bool failed_port_taken = false;  // because somebody else had its port: the next one gets another
  NanoUsd replicas_cost;           // of the replicas that have ended

  const Revision* revision(std::uint32_t number) const {
    for (const Revision& r : revisions)
      if (r.number == number)
        return &r;
    return nullptr;
  }
  // What is in force: of the revision that serves, or of the first while none does.
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
  }
};

enum class CallState { waiting, done, failed, cancelled };
BILLOW_ENUM_NAMES(CallState,
                  {CallState::waiting, "waiting"},
                  {CallState::done, "done"},
                  {CallState::failed, "failed"},
                  {CallState::cancelled, "cancelled"});

// A call that was accepted with 202: it is carried out at least once, and its answer is kept for a
// time.
struct AsyncCall {
  std::string id;  // not to be guessed: it is all one needs to ask for the answer
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
