#include "core/control/fabric.h"

#include <fmt/format.h>
#include <algorithm>

#include "base/text.h"

namespace billow::control {
namespace {

constexpr std::int64_t good_part_percent = 60;
// Above this a few TCP connections are limited by the processors.
constexpr std::int64_t stream_mbit_s_max = 40'000;
// Below this GPUs wait for gradients, whatever the interface promises.
constexpr std::int64_t gang_mbit_s_min = 10'000;
constexpr std::size_t named_max = 3;

std::string names(const std::vector<std::string>& all) {
  std::string out;
  for (std::size_t i = 0; i < std::min(all.size(), named_max); ++i)
    out += (out.empty() ? "" : ", ") + all[i];
  return all.size() > named_max ? fmt::format("{} and {} more", out, all.size() - named_max) : out;
}

std::string_view label(const Node& node, std::string_view name) {
  const auto found = node.offer.labels.find(std::string(name));
  return found == node.offer.labels.end() ? std::string_view() : std::string_view(found->second);
}

// "19.8" for "19834"; a text that is not a number stays unchanged.
std::string thousands(std::string_view text) {
  const auto number = parse_int(text, 0, INT64_MAX);
  return number ? fmt::format("{:.3g}", static_cast<double>(*number) / 1000) : std::string(text);
}

bool could_take(const Node& node, const JobSpec& spec) {
  const Resources& r = spec.resources;
  if (!node.reachable || !node.drained.empty() ||
      static_cast<std::int32_t>(node.offer.gpus.size()) < r.gpus)
    return false;
  for (const auto& [key, value] : spec.node_labels)
    if (label(node, key) != value)
      return false;
  if (r.gpus == 0 || r.gpu_types.empty())
    return true;
  return std::any_of(node.offer.gpus.begin(), node.offer.gpus.end(), [&](const NodeGpu& gpu) {
    return std::find(r.gpu_types.begin(), r.gpu_types.end(), gpu.type) != r.gpu_types.end();
  });
}

// The nodes that the job has, or those it could get.
std::vector<const Node*> nodes_of_job(const State& state, const Job& job) {
  std::vector<const Node*> nodes;
  for (const TaskId id : job.tasks)
    if (const auto node = state.nodes.find(state.tasks.at(id).node);
        node != state.nodes.end() && state.tasks.at(id).state != TaskState::ended)
      nodes.push_back(&node->second);
  if (nodes.empty())
    for (const auto& [id, node] : state.nodes)
      if (could_take(node, *job.spec))
        nodes.push_back(&node);
  return nodes;
}

}  // namespace

bool is_slow(std::int64_t measured, std::int64_t expected) {
  return expected > 0 && measured * 100 < expected * good_part_percent;
}

std::int64_t expected_stream_mbit_s(std::int64_t interface_mbit_s) {
  return std::min(interface_mbit_s, stream_mbit_s_max);
}

std::string net_verdict(std::int64_t mbit_s, std::int64_t expected_mbit_s) {
  const auto gbit = [](std::int64_t m) {
    return fmt::format("{:.3g} Gbit/s", static_cast<double>(m) / 1000);
  };
  if (is_slow(mbit_s, expected_mbit_s))
    return fmt::format("{} over the network, though its interface should give {}", gbit(mbit_s),
                       gbit(expected_mbit_s));
  if (mbit_s < gang_mbit_s_min)
    return fmt::format("{} over the network, which slows jobs on several nodes", gbit(mbit_s));
  return "";
}

std::vector<std::string> fabric_notes(const State& state, const Job& job) {
  std::vector<std::string> notes;
  const JobSpec& spec = *job.spec;
  const bool over_gpus = spec.resources.gpus > 1, over_nodes = spec.nodes > 1;
  if (!over_gpus && !over_nodes)
    return notes;
  std::vector<std::string> no_nvlink, slow_gpus, slow_net;
  for (const Node* node : nodes_of_job(state, job)) {
    if (over_gpus && label(*node, label_gpu_link).starts_with("pcie"))
      no_nvlink.push_back(node->offer.name);
    if (over_gpus && label(*node, label_gpu_fabric) == "slow")
      slow_gpus.push_back(
          fmt::format("{} ({} GB/s)", node->offer.name, thousands(label(*node, label_gpu_mb_s))));
    if (over_nodes && label(*node, label_net_fabric) == "slow")
      slow_net.push_back(fmt::format("{} ({} Gbit/s)", node->offer.name,
                                     thousands(label(*node, label_net_mbit_s))));
  }
  if (!no_nvlink.empty())
    notes.push_back(
        fmt::format("the GPUs of {} have no NVLink and exchange data over PCIe", names(no_nvlink)));
  if (!slow_gpus.empty())
    notes.push_back(fmt::format(
        "the GPUs of {} exchange data slower than their hardware should: see billow check fabric",
        names(slow_gpus)));
  if (!slow_net.empty())
    notes.push_back(fmt::format("slow network at {}: see billow check fabric", names(slow_net)));
  return notes;
}

std::string fabric_unmeasured(const State& state, const Job& job) {
  std::vector<std::string> unmeasured;
  if (job.spec->nodes > 1)
    for (const Node* node : nodes_of_job(state, job))
      if (label(*node, label_net_fabric).empty())
        unmeasured.push_back(node->offer.name);
  return unmeasured.empty()
             ? ""
             : fmt::format("the network of {} was never measured: run billow check fabric",
                           names(unmeasured));
}

}  // namespace billow::control
