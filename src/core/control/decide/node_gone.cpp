// When a node goes away. There are two cases, and they must not be mixed up.
//
// 1. The node is about to go, and it still answers: the provider sends a reclaim notice
//    (NodeReclaimed), a person announces it (DrainNode with `reclaim`), an allocation ends
//    (leave_before_end), a machine or its pool is released. One rule holds for all of them: the
//    node takes no new jobs, and every job on it is asked to stop (with its grace period and a last
//    checkpoint) and is queued again: send_jobs_away. At the end of an allocation the jobs are
//    asked only `pool_end_grace` before it. It needs no --rerun-if-lost. That option is about jobs
//    of which nobody knows whether they still run; here the agent reports the end of the process
//    before the job is queued again, so the job never runs twice at the same time. A job that
//    stayed would be killed with its machine and end as lost.
//
// 2. The node is gone, or does not answer. Nobody knows what still runs there, so nothing is
//    started a second time without permission:
//      NodeSilent    no answer for a while: nothing new starts there, jobs keep their leases. Only
//                    jobs that somebody asked to stop end at once.
//      NodeFenced    the agent's own deadline has passed, so it has killed the tasks of jobs with
//                    --rerun-if-lost: they end as lost, and react.cpp queues the jobs again.
//      RemoveNode    a person says that the node does not come back: every task on it is lost.
//                    Jobs that were already asked to leave are queued again.
//      machine_gone  the provider says that the machine has ended: the same. If the machine is only
//                    missing from the provider's list, jobs that would be queued again stay until
//                    the fence has passed (may_run_twice).
//    A node that comes back says hello with its tasks (AgentHello in decide_agents.cpp), and both
//    sides agree again.
//
// Nothing here changes the state. The events are folded in apply_nodes.cpp and apply_pools.cpp;
// react.cpp (`settle`) decides what becomes of a job whose last task has ended; leases are closed
// by end_task, which charges a silent node's tasks only until the node was last heard of.
#include "core/control/decide/node_gone.h"

#include <fmt/format.h>

#include <set>

#include "base/limits.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "core/control/renting/bills.h"
#include "core/ledger/meter.h"

namespace billow::control {
namespace {

std::vector<TaskId> tasks_on(const State& state, NodeId node) {
  const auto on = state.tasks_on.find(node);
  if (on == state.tasks_on.end())
    return {};
  return {on->second.begin(), on->second.end()};
}

}  // namespace

std::vector<NodeId> nodes_of(const State& state, const Machine& machine) {
  std::vector<NodeId> out;
  for (const auto& [id, node] : state.nodes)
    if (node.pool == machine.pool && node_of_machine(node.offer.name, machine))
      out.push_back(id);
  return out;
}

bool send_jobs_away(const State& state,
                    const std::vector<NodeId>& nodes,
                    const std::string& reason,
                    Events& events,
                    const std::set<JobId>& except) {
  std::set<JobId> leaving;
  for (NodeId node : nodes)
    for (TaskId task : tasks_on(state, node))
      leaving.insert(state.tasks.at(task).job);
  for (JobId id : leaving) {
    if (state.jobs.at(id).stopping != StopCause::none || except.contains(id))
      continue;
    events.push_back(JobStopping{.job = id, .reason = reason, .cause = StopCause::preempted});
  }
  return !leaving.empty();
}

// ---- 1. The node is about to go

Decision Decider::operator()(const NodeReclaimed& c) {
  Events events;
  const auto node = state.nodes.find(c.node);
  if (node == state.nodes.end())
    return events;
  if (node->second.drained.empty())
    events.push_back(NodeDrained{c.node, fmt::format("{}{}", taken_away, c.reason)});
  send_jobs_away(state, {c.node},
                 fmt::format("node {} is being reclaimed: {}", node->second.offer.name, c.reason),
                 events);
  return events;
}

Decision Decider::operator()(const DrainNode& c) {
  const auto node = state.nodes.find(c.node);
  if (node == state.nodes.end())
    return fail(Code::not_found, "no such node", "see `billow nodes`");
  Events events;
  // A machine that is being released ends soon: a job that started there would end with it.
  const Machine* machine = machine_of(state, node->second.offer.name);
  if (machine && machine->pool == node->second.pool && machine->state == MachineState::releasing) {
    if (c.reason.empty())
      return fail(Code::conflict,
                  fmt::format("{} is being released: {}", node->second.offer.name, machine->reason),
                  "its pool rents another machine if a job needs one");
  } else if (node->second.drained != c.reason) {
    events.push_back(NodeDrained{c.node, c.reason});
  }
  // The agent asks jobs that checkpoint for a last one before it ends them.
  if (c.reclaim)
    send_jobs_away(state, {c.node},
                   fmt::format("node {} is being reclaimed", node->second.offer.name), events);
  return events;
}

namespace {
// Jobs on these nodes that began with the allocation and would begin anew in the next one.
std::set<JobId> never_finish(const State& state,
                             const Machine& machine,
                             const std::vector<NodeId>& nodes) {
  std::set<JobId> out;
  for (NodeId node : nodes)
    for (TaskId id : tasks_on(state, node)) {
      const Task& task = state.tasks.at(id);
      const Job& job = state.jobs.at(task.job);
      const bool saves = job.spec->checkpoint_every.ns > 0 || job.spec->checkpoint_signal != 0 ||
                         !job.spec->checkpoint_cmd.empty() || !job.checkpoint.path.empty();
      const bool serves = job.spec->labels.contains(label_endpoint);
      if (!saves && !serves && job.stopping == StopCause::none && task.started_at &&
          task.started_at < machine.here_at + limits::pool_end_margin)
        out.insert(task.job);
    }
  return out;
}
}  // namespace

void leave_before_end(const State& state, const Machine& machine, WallTime now, Events& events) {
  const std::vector<NodeId> nodes = nodes_of(state, machine);
  bool busy = false;
  for (NodeId id : nodes) {
    if (state.nodes.at(id).drained.empty())
      events.push_back(
          NodeDrained{id, fmt::format("{}{}", allocation_ends, utc_minute(machine.ends_at))});
    busy = busy || state.tasks_on.contains(id);
  }
  if (!busy)
    events.push_back(MachineReleased{machine.name, "its allocation ends"});
  else if (machine.ends_at - limits::pool_end_grace < now) {
    const std::set<JobId> too_long = never_finish(state, machine, nodes);
    for (JobId id : too_long)
      events.push_back(
          JobStopping{.job = id,
                      .reason = fmt::format("its allocation of {} was too short for it; save its "
                                            "state with --checkpoint-every, or give the pool a "
                                            "longer --time",
                                            format_duration(machine.ends_at - machine.here_at)),
                      .cause = StopCause::request});
    send_jobs_away(state, nodes, fmt::format("the allocation {} ends", machine.name), events,
                   too_long);
  }
}

// ---- 2. The node is gone, or does not answer

std::set<std::string> gone_in(const Events& events) {
  std::set<std::string> out;
  for (const EventBody& event : events)
    if (const auto* gone = get_if<MachineGone>(&event))
      out.insert(gone->machine);
  return out;
}

ExitStatus lost_exit(std::string why) {
  return {.kind = ExitKind::lost, .code = 0, .signal = 0, .message = std::move(why)};
}

namespace {

// Until when the tasks of a silent node pay. What the books know of them was reported, so the node
// was heard from then, even if its clock is ahead of ours.
WallTime heard_until(const State& state, const NodeSilent& c, const Context& context) {
  WallTime heard = context.billed - c.silent;
  for (TaskId id : tasks_on(state, c.node))
    heard = std::max(heard, state.money.books.last_change(ledger::lease_id(state.tasks.at(id))));
  return std::min(heard, context.billed);
}

}  // namespace

Decision Decider::operator()(const NodeSilent& c) {
  const auto node = state.nodes.find(c.node);
  if (node == state.nodes.end() || !node->second.reachable)
    return Events{};
  const WallTime heard = heard_until(state, c, context);
  Events events{NodeUnreachable{c.node, heard}};
  for (TaskId id : tasks_on(state, c.node)) {
    const Task& task = state.tasks.at(id);
    if (state.jobs.at(task.job).stopping != StopCause::request)
      continue;
    const ExitStatus stopped{
        .kind = ExitKind::stopped, .code = 143, .signal = 0, .message = "its node does not answer"};
    Context then = context;
    then.billed = heard;
    events.push_back(end_task(state, task, stopped, {}, {}, then));
  }
  return events;
}

Decision Decider::operator()(const NodeFenced& c) {
  Events events;
  const auto node = state.nodes.find(c.node);
  if (node == state.nodes.end() || node->second.reachable)
    return events;
  for (TaskId id : tasks_on(state, c.node)) {
    const Task& task = state.tasks.at(id);
    if (state.jobs.at(task.job).spec->rerun_if_lost)
      events.push_back(
          end_task(state, task, lost_exit("its node does not answer"), {}, {}, context));
  }
  return events;
}

Decision Decider::operator()(const RemoveNode& c) {
  const auto node = state.nodes.find(c.node);
  if (node == state.nodes.end())
    return fail(Code::not_found, "no such node", "see `billow nodes`");
  if (node->second.reachable)
    return fail(Code::conflict, fmt::format("node {} is still connected", node->second.offer.name),
                "stop `billow join` or the unit billow-node there first");
  Events events;
  for (TaskId id : tasks_on(state, c.node))
    events.push_back(
        end_task(state, state.tasks.at(id), lost_exit("its node was removed"), {}, {}, context));
  events.push_back(NodeRemoved{c.node});
  revoke_credentials(state, node->second.offer.name, events);
  return events;
}

JobId kind_of_job(const State& state, JobId id) {
  const Job* job = state.find_job(id);
  return !job ? JobId{} : job->array ? job->array : job->id;
}

bool may_run_twice(const State& state, const Machine& machine, const Context& context) {
  // Its agent may have been heard from last when a message of ours still reached it.
  constexpr Duration fence = limits::agent_unreachable_after + limits::fenced_after;
  for (NodeId id : nodes_of(state, machine)) {
    const Node& node = state.nodes.at(id);
    if (!node.reachable && context.billed - node.unreachable_since > fence)
      continue;
    for (TaskId task : tasks_on(state, id)) {
      const Job& job = state.jobs.at(state.tasks.at(task).job);
      if (job.spec->rerun_if_lost || job.stopping == StopCause::preempted)
        return true;
    }
  }
  return false;
}

void machine_gone(const State& state,
                  const Machine& machine,
                  const Gone& gone,
                  const Context& context,
                  Events& events) {
  const std::string& reason = gone.reason;
  for (NodeId id : nodes_of(state, machine)) {
    for (TaskId task : tasks_on(state, id))
      events.push_back(end_task(state, state.tasks.at(task),
                                lost_exit("its machine is gone: " + reason), {}, {}, context));
    events.push_back(NodeRemoved{id});
    if (const std::string& name = state.nodes.at(id).offer.name; name != machine.name)
      revoke_credentials(state, name, events);
  }
  revoke_credentials(state, machine.name, events);
  events.push_back(MachineGone{
      .machine = machine.name,
      .reason = reason,
      .unused = gone.unused,
      .bill = machine_bill(state, machine,
                           {.at = gone.billed_to ? gone.billed_to : context.now - gone.missing_for,
                            .billed = context.billed,
                            .existed = gone.existed,
                            .reason = reason,
                            .from = gone.billed_from,
                            .told = static_cast<bool>(gone.billed_to),
                            .ago = gone.missing_for}),
      .account = machine.account});
}

}  // namespace billow::control
