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

// The node label that names the model of the GPUs, by the vendor of a GPU type.
struct ModelLabel {
  std::string name;       // "nvidia.com/gpu.product"
  std::string mib = {};   // the label with the memory of a GPU, if there is one
  char between_words;     // in its values
  bool required = false;  // nodes without it cannot be told apart from those without GPUs
};
const ModelLabel& model_label(const std::string& gpu_type);
// The values of this label that mean the GPU type. Empty: any, because the type is not known, or no
// node has the label and it is not required. An error names the types that the nodes have.
Result<std::vector<std::string>> models_of_type(
    const std::map<std::string, NodeLabels::Labels>& nodes, const std::string& gpu_type);

// The location of a node by its labels, in Billow's: region, zone, rack, switch. `rack_label` is
// the cluster's own label for racks; empty: the usual ones.
NodeLabels::Labels place_labels(const NodeLabels::Labels& labels, const std::string& rack_label);

}  // namespace billow::pool
