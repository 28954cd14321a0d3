#include "core/control/residency.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "core/model/surroundings.h"

namespace billow::control {
namespace {

std::string region_of(const Node& node) {
  const auto region = node.offer.labels.find("region");
  return region == node.offer.labels.end() ? std::string() : region->second;
}

}  // namespace

bool may_hold(const Quota& quota, const std::string& region, const std::string& pool) {
  const auto in = [](const std::vector<std::string>& allowed, const std::string& where) {
    return allowed.empty() || std::ranges::find(allowed, where) != allowed.end();
  };
  return in(quota.regions, region) && in(quota.pools, pool);
}

Status may_hold(const State& state, ProjectId project, NodeId node) {
  const auto p = state.projects.find(project);
  const auto n = state.nodes.find(node);
  if (p == state.projects.end() || n == state.nodes.end())
    return fail(Code::not_found, "no such project or node");
  const Quota& quota = p->second.quota;
  if (may_hold(quota, region_of(n->second), pool_name(state, n->second)))
    return {};
  return fail(
      Code::forbidden,
      fmt::format("data of project {} may not be on node {}", p->second.name, n->second.offer.name),
      fmt::format("its data must stay in {}", quota.regions.empty()
                                                  ? "pools " + join(quota.pools, ", ")
                                                  : "regions " + join(quota.regions, ", ")));
}

std::set<std::string> trees_at(const State& state, NodeId node) {
  std::set<std::string> trees;
  const auto on = state.tasks_on.find(node);
  if (on == state.tasks_on.end())
    return trees;
  for (TaskId id : on->second) {
    const Job& job = state.jobs.at(state.tasks.at(id).job);
    if (!may_hold(state, job.project, node))
      continue;
    const Environment& env = state.environment(job.spec->env_digest);
    if (const auto files = env.find(surroundings::files); files != env.end())
      trees.insert(files->second);
    if (const std::string& saved =
            options_of(*job.spec, state.tasks.at(id).rank).surroundings.environment_digest;
        !saved.empty())
      trees.insert(saved);
  }
  return trees;
}

Status may_send(const State& state, NodeId node, std::string_view digest) {
  if (trees_at(state, node).contains(std::string(digest)))
    return {};
  const auto n = state.nodes.find(node);
  return fail(Code::forbidden,
              fmt::format("no job on node {} has these files",
                          n == state.nodes.end() ? "?" : n->second.offer.name),
              "files are sent only to nodes where a job that uses them runs");
}

std::vector<ProjectId> projects_at(const State& state, NodeId node) {
  std::vector<ProjectId> projects;
  const auto on = state.tasks_on.find(node);
  if (on == state.tasks_on.end())
    return projects;
  for (TaskId id : on->second) {
    const ProjectId project = state.jobs.at(state.tasks.at(id).job).project;
    if (std::ranges::find(projects, project) == projects.end() && may_hold(state, project, node))
      projects.push_back(project);
  }
  return projects;
}

std::vector<std::string> must_leave(const State& state,
                                    NodeId node,
                                    const std::vector<std::string>& projects) {
  std::vector<std::string> out;
  for (const std::string& name : projects) {
    const Project* project = state.project_by_name(name);
    if (!project || !may_hold(state, project->id, node))
      out.push_back(name);
  }
  return out;
}

Status nothing_outside(const State& state, ProjectId project, const Quota& quota) {
  if (quota.regions.empty() && quota.pools.empty())
    return {};
  constexpr std::size_t named_max = 5;
  std::vector<std::string> outside;
  for (const auto& [node, tasks] : state.tasks_on) {
    const Node& n = state.nodes.at(node);
    if (may_hold(quota, region_of(n), pool_name(state, n)))
      continue;
    for (TaskId id : tasks) {
      const Job& job = state.jobs.at(state.tasks.at(id).job);
      if (job.project == project)
        outside.push_back(
            fmt::format("job {} ({} on {})", job.id.value, enum_name(job.state), n.offer.name));
    }
  }
  if (outside.empty())
    return {};
  std::ranges::sort(outside);
  const std::size_t more = outside.size() > named_max ? outside.size() - named_max : 0;
  outside.resize(outside.size() - more);
  return fail(
      Code::conflict,
      fmt::format(
          "jobs of the project, and with them its data, are outside these regions or pools: {}{}",
          join(outside, ", "), more ? fmt::format(" and {} more", more) : ""),
      "wait for them to end, or stop them: billow stop JOB");
}

}  // namespace billow::control
