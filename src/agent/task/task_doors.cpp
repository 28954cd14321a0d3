// Ways into a running task: the ports its own processes listen on, and a secure shell in its place.
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>

#include "agent/isolate/users.h"
#include "agent/observe/proc_stats.h"
#include "agent/reach/listening.h"
#include "agent/task/tasks.h"
#include "container/enter.h"
#include "core/wire/codec.h"

namespace billow::agent {

using namespace wire::agent_v1;

namespace {

constexpr std::size_t listeners_max = 4096;

// A process of the task that has another root than this machine's: the runtime, which starts the
// job's program, has not.
Result<int> inside_room(const std::vector<int>& pids) {
  struct stat ours {};
  if (::stat("/", &ours) != 0)
    return fail_errno("/", errno);
  for (const int pid : pids) {
    struct stat its {};
    if (::stat(fmt::format("/proc/{}/root/", pid).c_str(), &its) == 0 &&
        (its.st_ino != ours.st_ino || its.st_dev != ours.st_dev))
      return pid;
  }
  return fail(Code::conflict,
              "the job's program does not run in its image yet; try again in a moment");
}

}  // namespace

Result<Tunnels::Door> Tasks::open_door(const TunnelOpen& request) {
  const int job_pid = pid_of(request.task);
  if (job_pid <= 0)
    return fail(Code::conflict, "the job does not run on this node right now");
  if (suspender_.frozen(request.task))
    return fail(Code::conflict, "the job is suspended; resume it first");
  if (request.port != 0) {
    const auto key = std::pair(request.task, request.port);
    auto known = listeners_.find(key);
    if (known == listeners_.end() || !still_listens(known->second)) {
      std::vector<int> pids = processes_of(request.task);
      if (pids.empty())
        pids.push_back(job_pid);
      auto found = find_listener(pids, request.port);
      if (!found) {
        if (known != listeners_.end())
          listeners_.erase(known);
        return pass(std::move(found.error()));
      }
      if (listeners_.size() >= listeners_max)
        listeners_.clear();
      known = listeners_.insert_or_assign(key, *found).first;
    }
    return Tunnels::Door{BILLOW_TRY(begin_connect(known->second)), {}, {}};
  }
  const TaskPlan* plan = suspender_.plan(request.task);
  if (!plan)
    return fail(Code::conflict, "the job is not known well enough here to enter it");
  SshPlace place;
  place.task = request.task;
  place.user = BILLOW_TRY(plan->other_user ? look_up_uid(plan->uid) : current_user());
  place.other_user = plan->other_user;
  place.job_pid = job_pid;
  place.env = plan->env;
  place.cwd = plan->cwd;
  if (const auto made =
          std::find_if(plan->env.begin(), plan->env.end(),
                       [](const std::string& one) {
                         return one.starts_with(std::string(container::plan_variable) + "=");
                       });
      made != plan->env.end()) {
    container::Entry entry;
    entry.plan =
        BILLOW_TRY(wire::from_json_text<container::Plan>(made->substr(made->find('=') + 1)));
    if (entry.plan.root) {
      entry.pid = BILLOW_TRY(inside_room(processes_of(request.task)));
      for (const std::string& one : plan->env)
        if (&one != &*made)
          entry.env.push_back(one);
      place.room = wire::to_json_text(entry);
      place.no_network = entry.plan.no_network;
      place.job_pid = entry.pid;
      place.cwd = "/";
    }
  }
  const TaskCgroup group = cgroups_.find(request.task);
  place.cgroups = group.v1;
  if (!group.v2.empty())
    place.cgroups.push_back(group.v2);
  return ssh_.open(place, request.authorized_key);
}

void Tasks::close_doors(TaskId task) {
  tunnels_.close_of(task, "the job has ended");
  listeners_.erase(listeners_.lower_bound({task, 0}), listeners_.upper_bound({task, UINT16_MAX}));
  // What a session started outlives it unless somebody ends it, where the task had no control group
  // of its own.
  if (ssh_.ended(task))
    for (int round = 0; round < 20 && kill_leftovers(key_of(task), {}) > 0; ++round)
      ::poll(nullptr, 0, 2);
  secret_files_.remove(task);
}

}  // namespace billow::agent
