#include "core/control/decide/isolation.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/model/address_block.h"
#include "core/model/system_calls.h"

namespace billow::control {
namespace {

Status check_network(const JobSpec& spec) {
  const Surroundings& s = spec.surroundings;
  const char* name = enum_name(s.network);
  if (!s.allow.empty() && s.network != ContainerNetwork::internet)
    return fail(Code::invalid, "--allow needs --network internet", "add it, or drop --allow");
  if (s.network == ContainerNetwork::host)
    return {};
  if (s.image.empty() && s.environment.empty() && s.isolation != Isolation::strict)
    return fail(
        Code::invalid,
        fmt::format("--network {} needs an image, an environment or --isolation strict", name),
        "add --isolation strict, --image or --env, or drop --network");
  if (spec.nodes > 1)
    return fail(
        Code::invalid,
        fmt::format("--network {} is not possible on several nodes: a gang needs the network",
                    name),
        fmt::format("drop --network {}", name));
  BILLOW_TRY(parse_allowed(s.allow));
  return {};
}

// A job of a project whose jobs must be strict chooses its network within what the project allows.
Status check_projects_network(const Surroundings& s, const Project& project) {
  const auto bad = [&](std::string what, std::string hint) {
    return fail(Code::forbidden,
                fmt::format("jobs of project {} {}", project.name, std::move(what)),
                std::move(hint));
  };
  if (project.isolation != Isolation::strict)
    return {};
  if (s.network == ContainerNetwork::internet && project.network != ContainerNetwork::internet)
    return bad("must not reach the Internet",
               fmt::format("drop --network; an admin can allow it: billow project set {} --network "
                           "internet",
                           project.name));
  // The node fetches inputs in its own network: that is the Internet, too.
  if (!s.inputs.empty() && project.network != ContainerNetwork::internet)
    return bad("must not fetch inputs, because the project has no access to the Internet",
               fmt::format("copy the files to the job with --sync instead of --input; an admin can "
                           "allow it: billow project set {} --network internet",
                           project.name));
  if (s.network == ContainerNetwork::project && project.network == ContainerNetwork::none)
    return bad("must not reach each other",
               fmt::format("drop --network; an admin can allow it: billow project set {} --network "
                           "project",
                           project.name));
  const auto allowed = BILLOW_TRY(parse_allowed(project.allow));
  for (const AddressBlock& block : BILLOW_TRY(parse_allowed(s.allow)))
    if (std::ranges::none_of(allowed, [&](const auto& one) { return block.within(one); }))
      return bad(
          fmt::format("must not reach {}", block.text()),
          fmt::format("drop --allow; an admin can allow it: billow project set {} --allow {}",
                      project.name, block.text()));
  return {};
}

// Strict isolation is refused where it would not be a wall.
Status check_wall(JobSpec& spec, const Project& project) {
  Surroundings& s = spec.surroundings;
  BILLOW_TRY_VOID(check_system_calls(s.refused_calls));
  const auto bad = [](const char* why, const char* hint) {
    return fail(Code::invalid, fmt::format("--isolation strict: {}", why), hint);
  };
  if (s.isolation != Isolation::strict) {
    if (project.isolation == Isolation::strict)
      return fail(Code::forbidden,
                  fmt::format("jobs of project {} run with strict isolation only", project.name),
                  "add --isolation strict; an admin can change this with `billow project set`");
    return {};
  }
  if (s.network == ContainerNetwork::host)
    s.network = ContainerNetwork::none;
  const Resources& r = spec.resources;
  if (spec.nodes > 1)
    return bad("a gang needs a network between its nodes", "use one node");
  if (r.whole_node)
    return bad("--whole-node gives direct access to the machine",
               "ask for GPUs, CPUs and memory instead");
  if (r.gpus > 0 && !r.share.whole() && r.mig_profile.empty())
    return bad("a slice of a GPU is shared with other jobs and not isolated from them",
               "use whole GPUs or MIG instances (--mig)");
  if (!s.image.empty() && spec.procs > 1)
    return bad("with --image, each process of --procs would be in another container",
               "drop --image, or start the processes yourself (torchrun)");
  if (!s.outputs.empty() && s.network != ContainerNetwork::internet)
    return bad("outputs cannot be uploaded without a network",
               "keep them with --output PATH and fetch them with `billow cp`");
  if (spec.suspendable == Suspendable::yes)
    return bad("the memory of a suspended job would leave its isolation", "drop --suspendable");
  if (!spec.checkpoint_dir.empty())
    return bad("--checkpoint-dir is a directory of the node, which an isolated job cannot see",
               "omit it: the job gets a private checkpoint directory");
  return {};
}

}  // namespace

Status check_isolation(JobSpec& spec, const Project& project) {
  BILLOW_TRY_VOID(check_wall(spec, project));
  BILLOW_TRY_VOID(check_network(spec));
  return check_projects_network(spec.surroundings, project);
}

}  // namespace billow::control
