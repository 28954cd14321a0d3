// Connections into a running task: to a port that one of its processes listens on, and SSH.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "agent/isolate/users.h"
#include "agent/observe/proc_stats.h"
#include "agent/reach/listening.h"
#include "agent/task/tasks.h"

namespace billow::agent {

using namespace wire::agent_v1;

namespace {

constexpr std::size_t listeners_max = 512;  // each holds up to two descriptors

}  // namespace

// The user that the job's own connections have.
ConnectAs Tasks::network_user_of(TaskId task) const {
  const TaskPlan* plan = suspender_.plan(task);
  const auto identity = plan ? plan->identity() : std::nullopt;
  if (identity && identity->uid != 0)
    return {identity->uid, identity->gid};
  if (const auto image = image_plan(task); image && image->outside_uid != 0)
    return {image->outside_uid, image->outside_gid};
  return {::geteuid(), ::getegid()};
}

Result<Tunnels::Target> Tasks::open_port(TaskId task, std::uint16_t port) {
  const auto key = std::pair(task, port);
  auto known = listeners_.find(key);
  if (known != listeners_.end() && !still_listens(known->second.listener)) {
    listeners_.erase(known);
    known = listeners_.end();
  }
  if (known == listeners_.end()) {
    const auto processes = [this, task] {
      std::vector<int> pids = processes_of(task);
      if (pids.empty())
        pids.push_back(pid_of(task));
      return pids;
    };
    Listener found = BILLOW_TRY(find_listener({.processes = processes, .port = port}));
    if (listeners_.size() >= listeners_max)
      listeners_.clear();
    known = listeners_.insert_or_assign(key, KnownListener{std::move(found), network_user_of(task)})
                .first;
  }
  return Tunnels::Target{
      BILLOW_TRY(begin_connect(known->second.listener, known->second.as)), {}, {}};
}

Result<Tunnels::Target> Tasks::open_door(const TunnelOpen& request) {
  if (rights_->of_helper())
    return fail(
        Code::unsupported,
        "this node's agent is not root and does not offer connections into jobs (ssh, "
        "port-forward)",
        "`billow shell` starts a job with a terminal; choose a node whose agent is root for "
        "the rest");
  const int job_pid = pid_of(request.task);
  if (job_pid <= 0)
    return fail(Code::conflict, "the job does not run on this node right now");
  if (suspender_.frozen(request.task))
    return fail(Code::conflict, "the job is suspended; resume it first");
  if (request.port != 0)
    return open_port(request.task, request.port);
  SshPlace place;
  place.task = request.task;
  place.place = BILLOW_TRY(place_of(request.task));
  auto user = place.place.identity ? look_up_uid(place.place.identity->uid) : current_user();
  if (!user)
    return fail(Code::conflict,
                "the job has no account on its node, because it is confined; ssh cannot enter it",
                "`billow port-forward` reaches its ports; for a shell behind the same wall, run "
                "one: `billow run --isolation strict -- sh`");
  place.user = std::move(*user);
  if (const auto image = image_plan(request.task); image && image->root)
    place.no_network = image->no_network;
  return ssh_.open(place, request.authorized_key);
}

void Tasks::close_doors(TaskId task) {
  tunnels_.close_of(task, "the job has ended");
  listeners_.erase(listeners_.lower_bound({task, 0}), listeners_.upper_bound({task, UINT16_MAX}));
  // Programs started in an SSH session would outlive a task that has no control group.
  if (ssh_.ended(task))
    for (int round = 0; round < 20 && kill_leftovers(key_of(task), {}) > 0; ++round)
      ::poll(nullptr, 0, 2);
  secret_files_.remove(task);
}

}  // namespace billow::agent
