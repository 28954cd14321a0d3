#include "view/names.h"

#include <fmt/format.h>

namespace billow::view {

std::string user_name(const control::State& state, UserId id) {
  const auto found = state.users.find(id);
  return found == state.users.end() ? "" : found->second.name;
}

std::string project_name(const control::State& state, ProjectId id) {
  const auto found = state.projects.find(id);
  return found == state.projects.end() ? "" : found->second.name;
}

std::string node_name(const control::State& state, NodeId id) {
  const auto found = state.nodes.find(id);
  return found == state.nodes.end() ? fmt::format("node {}", id.value) : found->second.offer.name;
}

std::string gpu_type(const control::State& state, const Task& task) {
  const auto node = state.nodes.find(task.node);
  if (node == state.nodes.end() || task.gpus.empty())
    return "";
  const auto& gpus = node->second.offer.gpus;
  const auto index = static_cast<std::size_t>(task.gpus.front().gpu);
  return index < gpus.size() ? gpus[index].type : "";
}

std::string job_label(const Job& job) {
  return job.array ? fmt::format("{}.{}", job.array.value, job.array_index)
                   : fmt::format("{}", job.id.value);
}

}  // namespace billow::view
