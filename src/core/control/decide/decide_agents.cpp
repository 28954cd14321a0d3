// Decisions about reports of agents: their hello, and the states of their tasks. node_gone.cpp
// handles nodes that go away.
#include "core/control/decide/decider.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "base/text.h"
#include "core/control/believed.h"
#include "core/control/decide/begun.h"
#include "core/control/decide/node_gone.h"
#include "core/control/money.h"
#include "core/control/renting/disk.h"

namespace billow::control {
namespace {

// A process that begins later than this after its placement is charged from its beginning.
constexpr Duration begins_within = seconds(2);

// As the end of a task that never began: nothing is charged for it.
constexpr WallTime before_any_lease{1};

// Converts a time of a node's wall clock to the billing clock, by the present difference of the two
// on the head.
WallTime billed_time(WallTime at, const Context& context) {
  return std::min(at - (context.now - context.billed), context.billed);
}

TaskStarted start_task(const State& state, const Task& task, WallTime at, const Context& context) {
  TaskStarted started{task.id, at ? at : context.now, {}};
  // It pays from its placement on if nobody knows when it began, or if it has been metered.
  if (!at || has_begun(state, task))
    return started;
  if (const WallTime from = billed_time(at, context); from - task.lease_from > begins_within)
    started.lease_from = from;
  return started;
}

}  // namespace

TaskEnded end_task(const State& state,
                   const Task& task,
                   ExitStatus exit,
                   TaskUsage usage,
                   WallTime ended_at,
                   const Context& context) {
  WallTime to = ended_at ? billed_time(ended_at, context) : context.billed;
  // If nobody saw the end of a task on a silent node, nothing is charged after the node was last
  // heard of.
  if (const auto node = state.nodes.find(task.node);
      !ended_at && node != state.nodes.end() && !node->second.reachable)
    to = std::min(to, node->second.unreachable_since);
  // Its node is gone, and it was never seen to run.
  if (!ended_at && !has_begun(state, task))
    to = before_any_lease;
  to = std::max(to, task.lease_from);
  settle_meter(state, task, usage.meter, context.billed);
  // Traffic counts within the lease, whatever the clocks say.
  if (usage.meter.egress_bytes > 0)
    to = std::max(to, WallTime{task.lease_from.ns + 1});
  return {.task = task.id,
          .exit = std::move(exit),
          .usage = usage,
          .lease_to = to,
          .cost = ledger::lease_cost(task, to) + usage.meter.egress};
}

void Decider::report_events(Events& events, const Task& task, const TaskStatus& said) {
  if (task.state == TaskState::ended)
    return;
  TaskStatus status = said;
  keep_believed(status);
  // Before the end, so that the next attempt continues from it.
  if (!status.checkpoint.path.empty() && status.checkpoint != state.jobs.at(task.job).checkpoint &&
      status.checkpoint.at >= state.jobs.at(task.job).checkpoint.at)
    events.push_back(JobCheckpointed{task.job, status.checkpoint});
  if (status.state != TaskState::ended)
    order_events(events, task, status);
  switch (status.state) {
    case TaskState::ended: {
      Task ended = task;
      // Nobody heard of its start.
      if (!task.started_at && status.started_at) {
        const TaskStarted started = start_task(state, task, status.started_at, context);
        if (started.lease_from) {
          ended.lease_from = started.lease_from;
          events.push_back(started);
        }
      }
      const bool began = task.started_at || status.started_at || !status.never_began;
      events.push_back(end_task(state, ended, status.exit, status.usage,
                                began ? status.ended_at : before_any_lease, context));
      get<TaskEnded>(events.back()).never_began = status.never_began;
      // Something of this job is left on the node, and the next job must not meet it: the node
      // takes no more jobs until somebody has checked it.
      if (!status.left_behind.empty() && state.nodes.at(task.node).drained.empty())
        events.push_back(NodeDrained{task.node, fmt::format("job {} left something behind: {}",
                                                            task.job.value, status.left_behind)});
      return;
    }
    case TaskState::running:
      if (!task.started_at)
        events.push_back(start_task(state, task, status.started_at, context));
      return;
    case TaskState::starting:
    case TaskState::suspending:
    case TaskState::suspended:
    case TaskState::resuming:
    case TaskState::stopping:
    case TaskState::unreachable:
      return;
  }
}

Decision Decider::operator()(const AgentReport& c) {
  Events events;
  const Task* task = state.find_task(c.status.task);
  if (!task)
    return events;  // already settled; the shell acknowledges it
  if (task->node != c.node)
    return fail(Code::forbidden, fmt::format("a node reported task {}, which runs on another node",
                                             c.status.task.value));
  report_events(events, *task, c.status);
  return events;
}

namespace {
// Live tasks on the node that no longer belong to it: given up while it was silent, or the node was
// removed. They are ordered to end, and until they have ended, nobody else gets their capacity.
bool has_strangers(const State& state, const AgentHello& hello, NodeId node) {
  for (const Effect& effect : hello_effects(state, node, hello.tasks))
    if (const auto* settle = get_if<wire::agent_v1::Settle>(&effect.message);
        settle && !settle->unknown.empty())
      return true;
  return false;
}
}  // namespace

Decision Decider::operator()(const AgentHello& c) {
  BILLOW_TRY_VOID(check_hello(state, c));
  Events events;
  const Node* node = state.node_by_name(c.offer.name);
  if (!node) {
    Node joined{.id = NodeId(state.next_node), .offer = c.offer, .joined_at = context.now};
    if (const auto token = state.tokens.find(c.credential); token != state.tokens.end())
      joined.pool = token->second.pool;
    const NodeId id = joined.id;
    events.push_back(NodeJoined{std::move(joined)});
    bind_credential(events, c);
    if (has_strangers(state, c, id))
      events.push_back(NodeUnreachable{id});
    return events;
  }
  const bool stays_closed = has_strangers(state, c, node->id);
  bind_credential(events, c);
  NodeOffer offer = c.offer;
  offer.disk_mib = disk_offered(state, *node, offer.disk_mib);
  if (node->offer != offer)
    events.push_back(NodeOfferChanged{node->id, std::move(offer)});
  if (!node->reachable)
    events.push_back(NodeReachable{node->id});
  // The machine to be reclaimed is gone or was rebooted; either way the notice does not apply to
  // this boot.
  if (node->drained.starts_with(taken_away) && node->offer.boot_id != c.offer.boot_id)
    events.push_back(NodeDrained{node->id, ""});
  const auto on = state.tasks_on.find(node->id);
  for (TaskId id : on == state.tasks_on.end() ? std::set<TaskId>{} : on->second) {
    const Task& task = state.tasks.at(id);
    const auto known = std::find_if(c.tasks.begin(), c.tasks.end(),
                                    [&](const TaskStatus& s) { return s.task == id; });
    if (known != c.tasks.end())
      report_events(events, task, *known);
    else if (task.boot_id != c.offer.boot_id) {
      events.push_back(end_task(state, task, lost_exit("its node restarted"), {},
                                task.started_at ? WallTime{} : before_any_lease, context));
      // A process leaves a directory, which the hello would have listed: no directory, no process.
      get<TaskEnded>(events.back()).never_began = !task.started_at;
    } else if (task.started_at)
      events.push_back(
          end_task(state, task, lost_exit("its node no longer knows it"), {}, {}, context));
    // Placed but never seen: the start is sent again, which the task's directory makes safe. To end
    // it instead would not be: a head that was replaced and does not know it could still send it.
  }
  // Its own tasks are settled now; it takes no jobs until a hello without foreign tasks.
  if (stays_closed)
    events.push_back(NodeUnreachable{node->id});
  return events;
}

}  // namespace billow::control
