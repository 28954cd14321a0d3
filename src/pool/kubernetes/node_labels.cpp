#include "pool/kubernetes/node_labels.h"

#include <fmt/format.h>

#include "base/log.h"

namespace billow::pool {
namespace {

constexpr int nodes_of_a_page = 500;
constexpr Duration labels_life = minutes(1);
constexpr Duration list_pause = seconds(5);  // between two lists because of unknown nodes

// Labels that clouds and operators set, the most common first.
struct PlaceLabel {
  const char* ours;
  const char* theirs;
};
constexpr PlaceLabel place_table[] = {
    {"region", "topology.kubernetes.io/region"},
    {"zone", "topology.kubernetes.io/zone"},
    {"rack", "topology.kubernetes.io/rack"},
    {"rack", "network.topology.nvidia.com/block"},
    {"rack", "topology.k8s.aws/network-node-layer-2"},
    {"rack", "cloud.google.com/gce-topology-block"},
    {"switch", "network.topology.nvidia.com/leaf"},
    {"switch", "topology.k8s.aws/network-node-layer-3"},
    {"switch", "cloud.google.com/gce-topology-subblock"},
};

}  // namespace

NodeLabels::Labels place_labels(const NodeLabels::Labels& labels, const std::string& rack_label) {
  NodeLabels::Labels out;
  if (const auto rack = labels.find(rack_label); rack != labels.end())
    out["rack"] = rack->second;
  for (const PlaceLabel& one : place_table)
    if (const auto found = labels.find(one.theirs); found != labels.end() && !found->second.empty())
      out.try_emplace(one.ours, found->second);
  return out;
}

// Metadata only: a node's status is many times larger.
Result<std::map<std::string, NodeLabels::Labels>> NodeLabels::list() {
  known_.lock()->tried_at = clock_.steady();
  std::map<std::string, Labels> nodes;
  std::string more;
  do {
    std::string target = fmt::format("/api/v1/nodes?limit={}", nodes_of_a_page);
    if (!more.empty())
      target += "&continue=" + net::percent_encode(more);
    const auto answer = BILLOW_TRY(client_.ask(
        {.target = target,
         .accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}));
    if (!answer.ok())
      return pass(answer.error("listing the nodes"));
    for (const Json& node : answer.body["items"].items()) {
      Labels& labels = nodes[std::string(node.at("metadata", "name").str_or(""))];
      for (const auto& [key, value] : node.at("metadata", "labels").members())
        labels[key] = value.str_or("");
    }
    more = answer.body.at("metadata", "continue").str_or("");
  } while (!more.empty());
  auto known = known_.lock();
  known->nodes = nodes;
  known->listed_at = clock_.steady();
  return nodes;
}

Result<std::map<std::string, NodeLabels::Labels>> NodeLabels::all() {
  if (auto known = known_.lock();
      known->listed_at && clock_.steady() - *known->listed_at < labels_life)
    return known->nodes;
  return list();
}

void NodeLabels::learn(const std::string& node) {
  if (auto known = known_.lock();
      known->nodes.contains(node) ||
      (known->tried_at && clock_.steady() - *known->tried_at < list_pause))
    return;
  if (const auto listed = list(); !listed)
    log_debug("where pods stand is not known: {}", listed.error().message);
}

NodeLabels::Labels NodeLabels::of(const std::string& node) {
  auto known = known_.lock();
  const auto found = known->nodes.find(node);
  return found == known->nodes.end() ? Labels{} : found->second;
}

}  // namespace billow::pool
