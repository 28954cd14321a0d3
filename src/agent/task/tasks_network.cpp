// Networks that the agent makes for tasks (agent/network).
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/network/reach_rules.h"
#include "agent/task/tasks.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "core/model/address_block.h"

namespace billow::agent {
namespace {

std::string value_of(const std::map<std::string, std::string>& env, const char* name) {
  const auto found = env.find(name);
  return found == env.end() ? std::string() : found->second;
}

std::uint64_t job_number(const std::string& text) {
  return static_cast<std::uint64_t>(parse_int(text, 0, INT64_MAX).value_or(0));
}

// In its place, because jobs have it mounted: longer content first, so that a reader never finds
// less than what stays.
Status write_in_place(const std::string& path, const std::string& text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd || ::fchmod(fd.get(), 0644) != 0)
    return fail_errno(path, errno);
  BILLOW_TRY_VOID(write_all(fd.get(), text));
  if (::ftruncate(fd.get(), static_cast<off_t>(text.size())) != 0)
    return fail_errno(path, errno);
  return {};
}

}  // namespace

// A network that the agent makes, if the job asks for one. Without it the job does not start.
Status Tasks::make_network(Starting& s, Environment& env) {
  const Surroundings& asked = s.start.surroundings;
  env.erase(job_address_variable);
  if (!is_made_by_agent(asked.network))
    return {};
  if (!s.prepared)
    return fail(Code::internal, "a job with a network of its own was to run without a container");
  s.spec.own_network = true;
  if (asked.network == ContainerNetwork::internet) {
    std::vector<std::string> groups;
    if (const auto made = cgroups_.create_for_uplink(s.start.task, s.start.cpu_milli)) {
      groups = made->v1;
      if (!made->v2.empty())
        groups.push_back(made->v2);
    } else {
      log_warn("task {}: its uplink has no limits: {}", s.start.task.value, made.error().message);
    }
    s.network = BILLOW_TRY(make_internet(
        {.allowed = BILLOW_TRY(parse_allowed(asked.allow, 2 * limits::allowed_blocks_max)),
         .identity = container_user(s.start.task),
         .cgroups = std::move(groups),
         .program = executable_dir() + "/billow"}));
    return {};
  }
  const std::string project = value_of(s.start.env, "BILLOW_PROJECT");
  if (project.empty())
    return fail(Code::internal, "the head did not say which project the job belongs to");
  s.network = BILLOW_TRY(
      project_networks_.join(s.start.task, {.project = project,
                                            .name = value_of(s.start.env, "BILLOW_JOB_NAME"),
                                            .job = s.start.job.value,
                                            .address = {}}));
  env[job_address_variable] = s.network->address;
  return write_in_place(hosts_file(project), project_networks_.hosts(project));
}

bool Tasks::may_reach(const std::vector<std::string>& allow, const net::RawAddress& address) {
  const auto target = target_of(address);
  auto allowed = parse_allowed(allow, 2 * limits::allowed_blocks_max);
  if (!target || !allowed)
    return false;
  auto rules = ReachRules::create(std::move(*allowed), {});
  return rules && rules->permits(*target);
}

// One for all jobs of a project: those that came earlier see who came later.
std::string Tasks::hosts_file(const std::string& project) const {
  return temporary_.below("hosts-" + sha256_hex(project).substr(0, 16));
}

void Tasks::adopt_network(TaskId task) {
  const auto record = recorded(task);
  const auto found = dirs_.find(task);
  if (!record || !found || record->variable(job_address_variable).empty())
    return;
  project_networks_.adopt(task,
                          {.project = record->variable("BILLOW_PROJECT"),
                           .name = record->variable("BILLOW_JOB_NAME"),
                           .job = job_number(record->variable("BILLOW_JOB_ID")),
                           .address = record->variable(job_address_variable)},
                          found->supervisor_pid);
}

}  // namespace billow::agent
