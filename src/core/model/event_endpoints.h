// What happens to endpoints and to their asynchronous calls. See event.h.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "core/model/endpoint.h"
#include "core/model/job.h"

namespace billow {

// A new revision, of a new endpoint or of one that is there. It is brought up; what served goes on
// serving meanwhile.
struct EndpointDeployed {
  static constexpr const char* kind = "endpoint_deployed";
  std::string endpoint;
  ProjectId project;
  UserId user;
  Revision revision;
  template <class V>
  void fields(V& v) {
    v("endpoint", endpoint);
    v("project", project);
    v("user", user);
    v("revision", revision);
  }
};
// A revision takes over, or never will.
struct RevisionJudged {
  static constexpr const char* kind = "revision_judged";
  std::string endpoint;
  std::uint32_t revision = 0;
  bool healthy = false;
  std::string reason;
  JobId job;  // the replica that failed it; zero: none in particular
  template <class V>
  void fields(V& v) {
    v("endpoint", endpoint);
    v("revision", revision);
    v("healthy", healthy);
    v("reason", reason);
    v("job", job);
  }
};
struct EndpointScaled {
  static constexpr const char* kind = "endpoint_scaled";
  std::string endpoint;
  EndpointPolicy policy;  // of the revision in force
  template <class V>
  void fields(V& v) {
    v("endpoint", endpoint);
    v("policy", policy);
  }
};
struct EndpointKeySet {
  static constexpr const char* kind = "endpoint_key_set";
  std::string endpoint;
  EndpointKey key;
  bool removed = false;
  template <class V>
  void fields(V& v) {
    v("endpoint", endpoint);
    v("key", key);
    v("removed", removed);
  }
};
struct EndpointDeleted {
  static constexpr const char* kind = "endpoint_deleted";
  std::string endpoint;
  template <class V>
  void fields(V& v) {
    v("endpoint", endpoint);
  }
};
struct CallAccepted {
  static constexpr const char* kind = "call_accepted";
  AsyncCall call;
  template <class V>
  void fields(V& v) {
    v("call", call);
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
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("state", state);
    v("status", status);
    v("answer_headers", answer_headers);
    v("answer", answer);
    v("reason", reason);
  }
};
// Their answers were kept for long enough.
struct CallsForgotten {
  static constexpr const char* kind = "calls_forgotten";
  std::vector<std::string> ids;
  template <class V>
  void fields(V& v) {
    v("ids", ids);
  }
};

}  // namespace billow
