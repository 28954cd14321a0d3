// A pool of pods in a namespace of a Kubernetes cluster, each of which runs one agent. A machine is
// one pod, or the pods of a gang, which come and go together.
//
// A pod is created before the secret with its join token, because the secret belongs to the pod and
// is deleted with it. A pod whose secret is missing (the head died in between, or the server did)
// could never join: `nodes` finds and deletes it, and the order is repeated.
//
// The context and namespace that were current when the pool was first used are written down, so
// that `kubectl config use-context` does not move the pool to a cluster without its machines.
#pragma once

#include <mutex>
#include <shared_mutex>

#include "base/sync.h"
#include "pool/kubernetes/client.h"
#include "pool/kubernetes/node_labels.h"
#include "pool/kubernetes/pod.h"
#include "pool/kubernetes/pod_watch.h"
#include "pool/kubernetes/rights.h"
#include "pool/node_facts.h"
#include "pool/pool.h"

namespace billow::pool {

class KubernetesPool final : public Pool, public KnowsNodes {
 public:
  KubernetesPool(billow::Pool settings,
                 PodSettings pods,
                 Options options,
                 const Clock& clock,
                 KubeSurroundings surroundings);
  Ordered want(const Order& order) override;
  Result<std::vector<MachineSighting>> nodes() override;
  Status release(const MachineSighting& machine) override;
  Result<Account> account() override;
  NodeFacts facts_of(const std::string& node) override;
  std::string place() override { return *place_.lock(); }
  void stop() override { stop_.raise(); }

 private:
  using Members = std::vector<PodSeen>;  // the pods of one machine
  struct Ending {
    std::string why;
    bool taken = false;  // by somebody else
  };
  struct Known {
    std::map<std::string, Members> machines;  // as listed last
    std::set<std::string> complete;           // uids of pods whose secret exists
    std::set<std::string> discarded;          // uids of pods that an order left half made
    std::set<std::string> released;           // machines that we were asked to end
    std::map<std::string, Ending> ending;     // machine → why its pods end
    std::map<std::string, PodSeen> nodes;     // by the name of the node in Billow
  };

  // Where the pods are: client_ and name_space_.
  Status find_cluster();
  void learn(const PodSeen& pod);
  std::string target(std::string_view resource, std::string_view rest = {}) const;
  Result<PodSeen> create_pod(const PodRequest& request);
  Result<PodSeen> adopt_pod(const std::string& name);
  Status create_secret(const PodRequest& request, const PodSeen& pod);
  Status remove_pod(const std::string& name, const std::string& uid);
  Status remove_all(const Members& members);
  Status discard(const Members& members);
  Result<std::map<std::string, Members>> list();
  Result<bool> is_complete(const PodSeen& pod);
  Result<MachineSighting> sighting(const std::string& machine, const Members& members);
  std::string given_up(const Members& members) const;
  bool was_ordered_in_part(const std::string& machine, const Members& members);
  Result<std::vector<std::string>> gpu_products();
  void warn_of_gpu_type(Account& account);
  bool looks_for_type() const;  // among the nodes of the cluster
  Result<bool> may(const KubeRight& right);
  std::string remedy(const std::string& identity, bool in_namespace, bool over_nodes) const;

  billow::Pool settings_;
  PodSettings pods_;
  Options options_;
  const Clock& clock_;
  KubeSurroundings around_;
  StopSignal stop_;  // of everything below
  std::mutex finding_;
  // Orders run at the same time; a list waits for them, because it takes half an order for what a
  // crash has left.
  std::shared_mutex ordering_;
  std::string name_space_;
  Sync<Known> known_;
  Sync<std::string> place_;             // empty until find_cluster() has succeeded
  std::unique_ptr<KubeClient> client_;  // none until find_cluster() has succeeded
  std::unique_ptr<NodeLabels> labels_;  // likewise
  std::unique_ptr<PodWatch> watch_;     // likewise; uses those above
};

}  // namespace billow::pool
