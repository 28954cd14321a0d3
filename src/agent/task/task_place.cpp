// Where commands beside a running task run: hooks and SSH sessions (job_place.h).
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "agent/task/task_link.h"
#include "agent/task/tasks.h"
#include "base/file.h"
#include "base/text.h"
#include "container/enter.h"
#include "core/wire/codec.h"
#include "process/call_filter_linux.h"

namespace billow::agent {
namespace {

std::string assignment_of_plan() {
  return std::string(container::plan_variable) + "=";
}

// The first process of a container with its own process ids is ours, and does not have the user
// that the image names.
bool is_first_process(int pid) {
  const auto status = read_file(fmt::format("/proc/{}/status", pid), 64 << 10);
  for (const std::string& line : split(status ? *status : "", '\n'))
    if (line.starts_with("NSpid:"))
      return line.ends_with("\t1");
  return false;
}

// A process of the task whose root is not the node's: the program in the container, and not the
// runtime that starts it.
Result<int> inside_container(const std::vector<int>& pids) {
  struct stat ours {};
  if (::stat("/", &ours) != 0)
    return fail_errno("/", errno);
  int first = 0;
  for (const int pid : pids) {
    struct stat its {};
    if (::stat(fmt::format("/proc/{}/root/", pid).c_str(), &its) != 0 ||
        (its.st_ino == ours.st_ino && its.st_dev == ours.st_dev))
      continue;
    if (!is_first_process(pid))
      return pid;
    first = pid;
  }
  if (first > 0)
    return first;
  return fail(Code::conflict,
              "the job's program does not run in its image yet; try again in a moment");
}

// A process of the task that sees its environment mounted: programs that prepare the job do not.
Result<int> inside_environment(const std::vector<int>& pids, const container::Plan& plan) {
  for (const int pid : pids) {
    const auto mounts = read_file(fmt::format("/proc/{}/mountinfo", pid));
    if (!mounts)
      continue;
    const bool all = std::all_of(plan.overlays.begin(), plan.overlays.end(), [&](const auto& one) {
      return mounts->find(fmt::format(" {} ", one.target)) != std::string::npos;
    });
    if (all)
      return pid;
  }
  return fail(Code::conflict,
              "the job's program does not run in its environment yet; try again in a moment");
}

}  // namespace

std::optional<container::Plan> Tasks::image_plan(TaskId task) const {
  const TaskPlan* plan = suspender_.plan(task);
  if (!plan)
    return std::nullopt;
  const std::string name = assignment_of_plan();
  for (const std::string& variable : plan->env)
    if (variable.starts_with(name))
      if (auto found = wire::from_json_text<container::Plan>(variable.substr(name.size())))
        return std::move(*found);
  return std::nullopt;
}

std::uint32_t Tasks::refused_calls(const Surroundings& asked) const {
  std::uint32_t groups = process::no_kernel_doors;
  if (!options_.allow_namespaces)
    groups |= process::no_namespaces;
  if (asked.seccomp == CallProfile::strict)
    groups |= process::no_namespaces | process::no_rare_calls;
  return groups;
}

// A Landlock domain refuses mounts too.
std::uint32_t Tasks::own_domain() const {
  return options_.allow_namespaces ? 0u : process::own_domain;
}

Result<JobPlace> Tasks::place_of(TaskId task) const {
  const TaskPlan* plan = suspender_.plan(task);
  if (!plan)
    return fail(Code::conflict, "this agent does not know enough about the job to enter it");
  std::vector<int> pids = processes_of(task);
  // The first process; after a restart of the agent its supervisor may not have named it yet.
  if (const int first = pid_of(task); first > 0)
    pids.insert(pids.begin(), first);
  if (pids.empty())
    return fail(Code::conflict, "the job has no process on this node right now");
  JobPlace place;
  place.identity = plan->identity();
  place.cwd = plan->cwd;
  for (const std::string& variable : plan->env)
    if (!variable.starts_with(assignment_of_plan()))
      place.env.push_back(variable);
  const TaskCgroup group = cgroups_.find(task);
  place.cgroups = group.v1;
  if (!group.v2.empty())
    place.cgroups.push_back(group.v2);
  place.pid = pids.front();
  if (place.identity)
    place.refused_calls = refused_calls({});
  // A domain of their own would keep debuggers from the job. An account that several users share
  // needs it all the same.
  if (place.identity && options_.without_account &&
      place.identity->uid == options_.without_account->identity.uid)
    place.refused_calls |= own_domain();
  const auto image = image_plan(task);
  if (!image)
    return place;
  if (!image->root) {
    place.pid = BILLOW_TRY(inside_environment(pids, *image));
    place.env.insert(place.env.end(), image->env.begin(), image->env.end());
    return place;
  }
  place.pid = BILLOW_TRY(inside_container(pids));
  place.image_entry =
      wire::to_json_text(container::Entry{.pid = place.pid, .plan = *image, .env = place.env});
  place.cwd = "/";
  return place;
}

}  // namespace billow::agent
