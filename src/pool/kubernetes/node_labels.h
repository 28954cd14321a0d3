// The labels of a cluster's nodes: which GPUs they have and where they stand. Listing them is a
// right over the whole cluster that a pool may lack; then nothing is known.
//
// Thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/sync.h"
#include "pool/kubernetes/client.h"

namespace billow::pool {

class NodeLabels {
 public:
  using Labels = std::map<std::string, std::string>;
  NodeLabels(KubeClient& client, const Clock& clock) : client_(client), clock_(clock) {}

  // Node → its labels, not older than a minute.
  Result<std::map<std::string, Labels>> all();
  // Lists the nodes again if this one is not known.
  void learn(const std::string& node);
  // As known; never asks the server.
  Labels of(const std::string& node);

 private:
  struct Known {
    std::map<std::string, Labels> nodes;
    std::optional<SteadyTime> listed_at, tried_at;
  };
  Result<std::map<std::string, Labels>> list();

  KubeClient& client_;
  const Clock& clock_;
  Sync<Known> known_;
};

// The location of a node by its labels, in Billow's: region, zone, rack, switch. `rack_label` is
// the cluster's own label for racks; empty: the usual ones.
NodeLabels::Labels place_labels(const NodeLabels::Labels& labels, const std::string& rack_label);

}  // namespace billow::pool
