// Calls to a Kubernetes API server over HTTP/1.1. Overload (429) and failures of the server (5xx)
// are retried, and so is a 403 of a server that is not ready yet. A 401 reads the credentials anew,
// once: tokens and certificates expire. A client sends at most ten calls a second within any ten
// seconds, so that a burst of jobs does not slow down other users of the cluster. Calls end without
// an answer when the signal to stop is raised.
//
// Thread-safe: each call has a connection of its own, and idle ones are kept.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "base/sync.h"
#include "net/http/blocking_client.h"
#include "pool/kubernetes/kubeconfig.h"
#include "pool/kubernetes/stop_signal.h"
#include "pool/token_bucket.h"

namespace billow::pool {

struct KubeCall {
  net::Method method = net::Method::get;
  std::string target;  // "/api/v1/namespaces/team/pods?limit=500"
  Json body;           // null: none
  std::string accept = "application/json";
  std::string content_type = "application/json";  // of the body
};

struct KubeAnswer {
  int status = 0;
  Json body;  // of an error: a Status object
  std::string audit_id;
  bool ok() const { return status >= 200 && status < 300; }
  std::string_view reason() const { return body["reason"].str_or(""); }
  // An error with the server's own words: "create pod a: pods \"a\" is forbidden: … (403)".
  Error error(std::string_view what) const;
};

class KubeClient {
 public:
  // At most 96 calls within ten seconds: the rest is a margin for calls that the network delays.
  static constexpr TokenBucket::Limit limit = {.burst = 16, .per_s = 8};

  KubeClient(KubeChoice choice, KubeSurroundings surroundings, StopSignal& stop)
      : choice_(std::move(choice)), around_(std::move(surroundings)), stop_(stop) {}

  // An error only without an answer: the server is away, or the credentials cannot be read.
  Result<KubeAnswer> ask(const KubeCall& call);
  // One line of the answer after the other, until the server ends it, `on_line` returns false, or
  // no line came for the time of `patience`. The answer has no body unless it is an error.
  Result<KubeAnswer> follow(const std::string& target,
                            Duration patience,
                            const std::function<bool(std::string_view)>& on_line);
  Result<std::string> server();
  Result<std::string> context();  // empty: the service account of a pod

 private:
  struct Login {
    ClusterAccess access;
    PluginCredential plugin;
    SteadyTime read_at;
    std::uint64_t number = 0;
  };
  struct Kept {
    std::shared_ptr<const Login> login;
    std::vector<net::BlockingClient> idle;  // of `login`
    std::uint64_t next_number = 1;
  };
  Result<std::shared_ptr<const Login>> login(std::uint64_t refused);
  Result<net::BlockingClient> connection(const Login& login, bool kept);
  Result<net::Response> send(const Login& login, net::BlockingClient::Call call);
  Result<KubeAnswer> with_retries(net::BlockingClient::Call call);
  Status wait_for_turn();
  bool is_ready(const Login& login);

  KubeChoice choice_;
  KubeSurroundings around_;
  Sync<Kept> kept_;
  StopSignal& stop_;
  Sync<TokenBucket> bucket_{TokenBucket(limit)};
};

}  // namespace billow::pool
