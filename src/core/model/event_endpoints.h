// Events of endpoints and their asynchronous calls. See event.h.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "core/model/endpoint.h"
#include "core/model/job.h"

namespace billow {

// A new revision of a new or an existing endpoint. It starts while the previous one continues to
// serve.
struct EndpointDeployed {
  static constexpr const char* kind = "endpoint_deployed";
  std::string endpoint;
  ProjectId project;
  UserId user;
  Revision revision;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("project", s.project);
    v("user", s.user);
    v("revision", s.revision);
  }
};
// A revision takes over, or has failed for good.
struct RevisionJudged {
  static constexpr const char* kind = "revision_judged";
  std::string endpoint;
  std::uint32_t revision = 0;
  bool healthy = false;
  std::string reason;
  JobId job;  // the replica that failed it; zero: none in particular
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("revision", s.revision);
    v("healthy", s.healthy);
    v("reason", s.reason);
    v("job", s.job);
  }
};
struct EndpointScaled {
  static constexpr const char* kind = "endpoint_scaled";
  std::string endpoint;
  EndpointPolicy policy;  // of the revision in force
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("policy", s.policy);
  }
};
struct EndpointKeySet {
  static constexpr const char* kind = "endpoint_key_set";
  std::string endpoint;
  EndpointKey key;
  bool removed = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("key", s.key);
    v("removed", s.removed);
  }
};
struct EndpointDeleted {
  static constexpr const char* kind = "endpoint_deleted";
  std::string endpoint;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
  }
};
// The plan of a canary was changed, or it is to take over: its revision then rolls out like any
// other, while it keeps its part of the requests.
struct ReleaseChanged {
  static constexpr const char* kind = "release_changed";
  std::string endpoint;
  std::uint32_t revision = 0;
  ReleasePlan release;
  bool promoted = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("revision", s.revision);
    v("release", s.release);
    v("promoted", s.promoted);
  }
};
// A canary has ended without taking over.
struct ReleaseEnded {
  static constexpr const char* kind = "release_ended";
  std::string endpoint;
  std::uint32_t revision = 0;
  bool automatic = false;  // a gateway found it worse than the old revision
  std::string reason;
  JobId job;  // the replica that failed; zero: none in particular
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("revision", s.revision);
    v("automatic", s.automatic);
    v("reason", s.reason);
    v("job", s.job);
  }
};
// What keys have used so far on a day: absolute figures, so that a report heard twice counts once.
struct KeysUsed {
  static constexpr const char* kind = "keys_used";
  std::vector<KeyUse> uses;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("uses", s.uses);
  }
};
// What gateways have counted so far: absolute figures, too.
struct EndpointsCounted {
  static constexpr const char* kind = "endpoints_counted";
  std::vector<EndpointCount> counts;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("counts", s.counts);
  }
};
struct CallAccepted {
  static constexpr const char* kind = "call_accepted";
  AsyncCall call;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("call", s.call);
  }
};
struct CallEnded {
  static constexpr const char* kind = "call_ended";
  std::string id;
  CallState state = CallState::done;
  std::int32_t status = 0;
  std::map<std::string, std::string> answer_headers;
  std::string answer;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("state", s.state);
    v("status", s.status);
    v("answer_headers", s.answer_headers);
    v("answer", s.answer);
    v("reason", s.reason);
  }
};
// Their answers have expired.
struct CallsForgotten {
  static constexpr const char* kind = "calls_forgotten";
  std::vector<std::string> ids;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("ids", s.ids);
  }
};

}  // namespace billow
