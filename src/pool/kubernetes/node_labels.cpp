#include "pool/kubernetes/node_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "gpu/types.h"

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

const ModelLabel& model_label(const std::string& gpu_type) {
  // Set by the GPU feature discovery of NVIDIA, and by the node labeller of AMD, which is optional.
  static const ModelLabel nvidia = {.name = "nvidia.com/gpu.product",
                                    .mib = "nvidia.com/gpu.memory",
                                    .between_words = '-',
                                    .required = true};
  static const ModelLabel amd = {.name = "amd.com/gpu.product-name", .between_words = '_'};
  const GpuTypeFacts* const facts = find_gpu_type(gpu_type);
  return facts && facts->vendor == Vendor::amd ? amd : nvidia;
}

namespace {

// The GPU types of a cluster, each with the value of the nodes' label that means it.
std::string types_text(const std::map<std::string, std::string>& types, const std::string& label) {
  if (types.empty())
    return fmt::format("none has the label {}, which names the type", label);
  std::vector<std::string> each;
  for (const auto& [type, value] : types)
    each.push_back(fmt::format("{} ({}={})", type, label, value));
  return "it has " + join(each, ", ");
}

}  // namespace

Result<std::vector<std::string>> models_of_type(
    const std::map<std::string, NodeLabels::Labels>& nodes, const std::string& gpu_type) {
  if (!find_gpu_type(gpu_type))
    return std::vector<std::string>{};
  const ModelLabel& label = model_label(gpu_type);
  std::set<std::string> fitting;
  std::map<std::string, std::string> others;  // type → a value that means it
  for (const auto& [name, labels] : nodes) {
    const auto found = labels.find(label.name);
    if (found == labels.end())
      continue;
    std::string model = found->second;
    std::ranges::replace(model, label.between_words, ' ');
    const auto memory = labels.find(label.mib);
    const auto mib = parse_int(memory == labels.end() ? "0" : memory->second, 0, INT32_MAX);
    const std::string type = normalise_gpu_type(model, mib.value_or(0));
    if (type == gpu_type)
      fitting.insert(found->second);
    else
      others[type] = found->second;
  }
  if (fitting.empty() && (label.required || !others.empty()))
    return fail(Code::infeasible,
                fmt::format("no node of the cluster has GPUs of type {}: {}", gpu_type,
                            types_text(others, label.name)),
                "if such nodes are created on demand, name their label with --option "
                "gpu-product=…");
  return std::vector<std::string>(fitting.begin(), fitting.end());
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
