#include "core/control/decide/roles.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"

namespace billow::control {
namespace {

std::unexpected<Error> bad_role(std::string message, std::string hint = {}) {
  return fail(Code::invalid, std::move(message), std::move(hint));
}

// It becomes part of names of variables.
Status check_role_name(const std::string& name) {
  constexpr std::size_t bytes_max = 32;
  const auto letter = [](char c) {
    return c >= 'a' && c <= 'z';
  };
  const bool ok = !name.empty() && name.size() <= bytes_max && letter(name.front()) &&
                  std::ranges::all_of(name, [&](char c) {
                    return letter(c) || (c >= '0' && c <= '9') || c == '-';
                  });
  if (ok)
    return {};
  return bad_role(fmt::format("\"{}\" is not a valid name of a role", utf8_prefix(name, 64)),
                  "use a lower-case letter, then at most 31 lower-case letters, digits and dashes");
}

Status check_job_options(const JobSpec& spec) {
  if (spec.elastic)
    return bad_role("a group cannot be elastic", "give its roles retries, and add --rerun-if-lost");
  if (spec.reservation)
    return bad_role("a group cannot run inside a reservation", "drop --reservation");
  if (spec.place.spread == Spread::spread)
    return bad_role("the members of a group cannot be spread", "drop --spread");
  if (spec.array)
    return bad_role("a group cannot be an array",
                    "submit the group several times, or drop --array");
  return {};
}

Status check_role(const RoleSpec& role) {
  const Resources& r = role.resources;
  if (role.count < 1)
    return bad_role("count must be at least 1");
  if (r.takes_node() || !r.mig_profile.empty())
    return bad_role("a role cannot use whole nodes or MIG instances", "use gpus, cpus and mem");
  if (role.pty || role.use_stdin)
    return bad_role("a role has neither a terminal nor standard input");
  if (role.checkpoint_every.ns > 0)
    return bad_role("--checkpoint-every works for jobs without roles only",
                    "let the role write its checkpoints to shared storage");
  if (role.surroundings.isolation == Isolation::strict)
    return bad_role("--isolation strict is not possible: the roles of a group need the network");
  if (role.surroundings.network != ContainerNetwork::host)
    return bad_role(
        fmt::format("--network {} is not possible: the roles of a group need the network",
                    enum_name(role.surroundings.network)));
  for (const auto& [name, value] : role.env)
    if (name.starts_with("BILLOW_"))
      return bad_role(fmt::format("the variable {} belongs to Billow", name),
                      "choose a name that does not begin with BILLOW_");
  if (role.retries > limits::retries_max)
    return bad_role(fmt::format("retries must be at most {}", limits::retries_max));
  return validate(role.env);
}

// "BILLOW_GROUP_REWARD_MODEL_" for "reward-model".
std::string variable_prefix(const std::string& role) {
  std::string text = "BILLOW_GROUP_";
  for (char c : role)
    text += c == '-' ? '_' : (c >= 'a' && c <= 'z') ? static_cast<char>(c - 'a' + 'A') : c;
  return text + "_";
}

// Two ports for each member, below the ports of gangs. The same after a restart, so that the other
// members still reach it. Members of other groups on the same node have others, unless very many
// groups run.
std::uint64_t port_of(const Job& job, std::uint64_t rank) {
  constexpr std::uint64_t first = 10000, pairs = 4900;
  return first + 2 * ((job.id.value * limits::members_per_group_max + rank) % pairs);
}

// Ranks count within the role: each role is a distributed program of its own.
void set_ranks(const State& state,
               const Job& job,
               const GroupMember& member,
               wire::agent_v1::Start& start) {
  const RoleSpec& role = *member.role;
  if (role.count == 1 && role.procs == 1)
    return;
  const auto set = [&](const char* name, auto value) {
    start.env[name] = fmt::format("{}", value);
  };
  set("RANK", member.index * role.procs);
  set("LOCAL_RANK", 0);
  set("WORLD_SIZE", role.count * role.procs);
  set("LOCAL_WORLD_SIZE", role.procs);
  set("NODE_RANK", member.index);
  set("NNODES", role.count);
  set("MASTER_ADDR", host_of(state, job, member.first).address);
  set("MASTER_PORT", port_of(job, member.first) + 1);
}

}  // namespace

MemberHost host_of(const State& state, const Job& job, std::uint32_t rank) {
  const NodeId id = state.tasks.at(job.tasks.at(rank)).node;
  const auto node = state.nodes.find(id);
  if (node == state.nodes.end()) {
    const std::string gone = fmt::format("node-{}.invalid", id.value);
    return {gone, gone};
  }
  const NodeOffer& offer = node->second.offer;
  return {offer.name, offer.address.empty() ? offer.name : offer.address};
}

void complete_roles(JobSpec& spec) {
  if (spec.roles.empty())
    return;
  spec.nodes = 0;
  spec.resources = {};
  for (RoleSpec& role : spec.roles) {
    // The sum stays small enough to be checked.
    spec.nodes += std::min(role.count, limits::members_per_group_max + 1);
    role.time_limit = spec.time_limit;
    const auto size = [](const Resources& r) {
      return std::tuple(std::int64_t{r.gpus} * std::max(r.share.milli, 1), r.cpu_milli, r.mem_mib);
    };
    if (size(role.resources) > size(spec.resources))
      spec.resources = role.resources;
  }
  if (spec.argv.empty())
    spec.argv = spec.roles.front().argv;
}

Status validate_roles(const JobSpec& spec) {
  if (spec.roles.empty())
    return {};
  BILLOW_TRY_VOID(check_job_options(spec));
  if (spec.roles.size() > limits::roles_per_group_max)
    return bad_role(fmt::format("a group can have at most {} roles", limits::roles_per_group_max));
  if (spec.nodes > limits::members_per_group_max)
    return bad_role(
        fmt::format("a group can have at most {} members", limits::members_per_group_max));
  std::set<std::string> names;
  for (const RoleSpec& role : spec.roles) {
    BILLOW_TRY_VOID(check_role_name(role.name));
    if (!names.insert(role.name).second)
      return bad_role(fmt::format("two roles are named \"{}\"", role.name));
    if (auto ok = check_role(role); !ok)
      return pass(std::move(ok.error()), fmt::format("role {}", role.name));
  }
  if (std::ranges::all_of(spec.roles, &RoleSpec::service))
    return bad_role("every role is a service, so the group would never end",
                    "let at least one role end by itself: drop service = true there");
  const std::vector<JobSpec> parts = parts_of(spec);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (auto ok = validate(parts[i]); !ok)
      return pass(std::move(ok.error()), fmt::format("role {}", spec.roles[i].name));
  return {};
}

bool only_services_left(const State& state, const Job& job) {
  if (job.spec->roles.empty())
    return false;
  for (std::size_t rank = 0; rank < job.tasks.size(); ++rank) {
    const Task& task = state.tasks.at(job.tasks[rank]);
    if (!member_of(*job.spec, static_cast<std::uint32_t>(rank)).role->service &&
        (task.state != TaskState::ended || !task.exit.ok() || task.restarting))
      return false;
  }
  return true;
}

void set_role(const State& state, const Job& job, const Task& task, wire::agent_v1::Start& start) {
  const JobSpec& spec = *job.spec;
  const GroupMember member = member_of(spec, task.rank);
  static_cast<TaskOptions&>(start) = *member.role;
  if (member.role->own_env)
    std::erase_if(start.env, [](const auto& entry) { return !entry.first.starts_with("BILLOW_"); });
  for (const auto& [name, value] : member.role->env)
    start.env[name] = value;
  const auto set = [&](const std::string& name, auto value) {
    start.env[name] = fmt::format("{}", value);
  };
  set("BILLOW_ROLE", member.role->name);
  set("BILLOW_ROLE_INDEX", member.index);
  set("BILLOW_ROLE_COUNT", member.role->count);
  set("BILLOW_PORT", port_of(job, task.rank));
  set("BILLOW_REPAIRS", job.repairs);
  std::vector<std::string> names;
  std::uint32_t rank = 0;
  for (const RoleSpec& role : spec.roles) {
    names.push_back(role.name);
    std::vector<std::string> addresses;
    for (const std::uint32_t end = rank + role.count; rank < end; ++rank)
      addresses.push_back(
          fmt::format("{}:{}", host_of(state, job, rank).address, port_of(job, rank)));
    set(variable_prefix(role.name) + "ADDRESSES", join(addresses, ","));
  }
  set("BILLOW_GROUP_ROLES", join(names, ","));
  set_ranks(state, job, member, start);
}

// ---- one role starts again

Decision Decider::operator()(const RestartRole& c) {
  const Job* job = state.find_job(c.job);
  if (!job)
    return fail(Code::not_found, fmt::format("job {} has ended, or does not exist", c.job.value),
                "see `billow ps -a`");
  std::vector<std::string> names;
  for (const RoleSpec& role : job->spec->roles)
    names.push_back(role.name);
  if (names.empty())
    return fail(Code::conflict, fmt::format("job {} has no roles", c.job.value),
                fmt::format("to run it again: billow rerun {}", c.job.value));
  if (job->state != JobState::running || job->stopping != StopCause::none)
    return fail(
        Code::conflict,
        fmt::format("job {} is {}", c.job.value,
                    job->stopping != StopCause::none ? "being stopped" : enum_name(job->state)),
        "roles can be restarted while the group runs");
  const std::string role = c.role.substr(0, c.role.find('.'));
  MembersRestarting restarting{.job = c.job, .tasks = {}, .reason = c.reason};
  bool known = false;
  for (TaskId id : job->tasks) {
    const Task& task = state.tasks.at(id);
    const GroupMember member = member_of(*job->spec, task.rank);
    const std::string name = fmt::format("{}.{}", member.role->name, member.index);
    if (c.role != name && c.role != member.role->name)
      continue;
    known = true;
    if (task.state != TaskState::ended && !task.restarting)
      restarting.tasks.push_back(id);
  }
  if (!known) {
    const std::string near = nearest(role, names);
    return fail(Code::not_found, fmt::format("job {} has no role \"{}\"", c.job.value, c.role),
                near.empty() || near == role ? fmt::format("its roles: {}", join(names, ", "))
                                             : fmt::format("did you mean \"{}\"?", near));
  }
  if (restarting.tasks.empty())
    return fail(Code::conflict,
                fmt::format("role {} of job {} has ended or restarts already", c.role, c.job.value),
                fmt::format("see `billow describe {}`", c.job.value));
  return Events{std::move(restarting)};
}

void Applier::operator()(const MembersRestarting& e) {
  for (TaskId id : e.tasks) {
    Task& t = task(id);
    t.restarting = true;
    if (t.state != TaskState::ended && t.state != TaskState::unreachable)
      t.state = TaskState::stopping;
  }
}

}  // namespace billow::control
