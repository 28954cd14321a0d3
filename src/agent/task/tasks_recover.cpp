// Tasks of an earlier agent, and tasks whose supervisor was lost: what their directories say, and
// taking over those that still run.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "agent/observe/proc_stats.h"
#include "agent/task/gang.h"
#include "agent/task/task_link.h"
#include "agent/task/task_status.h"
#include "agent/task/tasks.h"
#include "base/file.h"
#include "base/log.h"
#include "core/wire/codec.h"
#include "gpu/sim/sim_holders.h"

namespace billow::agent {
namespace {

constexpr Duration settle_patience = milliseconds(20);  // the loop waits this long at most
constexpr Duration settle_again_after = milliseconds(100);

}  // namespace

// The directory of a task without a link says how it stands. While its supervisor lives, the agent
// tries to connect until it answers or ends. A task is lost only when its lock is free.
void Tasks::settle(TaskId task) {
  const auto found = dirs_.find(task);
  if (found && found->presence == TaskPresence::supervised) {
    auto again = rights_->connect(task, settle_patience);
    if (again)
      adopt(task, std::move(*again));
    else
      seek(task, settle_again_after);
    return;
  }
  if (!found && is_unreadable(found.error())) {
    log_warn("task {}: {}", task.value, found.error().message);
    seek(task, settle_again_after);
    return;
  }
  sought_.erase(task);
  if (found && found->exit)
    return ended(task, *found->exit);
  lost(task);
}

void Tasks::seek(TaskId task, Duration after) {
  sought_[task].again = loop_.after(after, [this, task] { settle(task); });
}

// The supervisor was killed. Its leftovers may hold a GPU and are killed before the task is
// reported as lost.
void Tasks::lost(TaskId task) {
  const TaskCgroup group = cgroups_.find(task);
  rights_->end_leftovers(task, group);
  TaskStatus status = lost_status(task, system_clock().wall(), "its supervisor died");
  status.usage.meter.egress_bytes = all_sent(task, group.v2);
  ports_.remove(task);
  disk_guard_.ended(task);
  remove_groups(task, group);
  remove_groups(task, cgroups_.find_uplink(task));
  if (!options_.sim_state_dir.empty())
    (void)remove_sim_hold(options_.sim_state_dir, task_name(task));
  close_doors(task);
  clean_up(task);
  callbacks_.event(task_event::Ended{std::move(status)});
  advanced(task);
}

// Takes over a task whose supervisor was found again.
void Tasks::adopt(TaskId task, SupervisorLink supervisor) {
  suspender_.adopted(task);
  if (const TaskPlan* plan = suspender_.plan(task)) {
    checkpointer_.began(task, *plan);
    for (const std::string& uuid : plan->mig_uuids)
      migs_.hold(task, uuid);
  }
  watch(task, std::move(supervisor));
  Link* l = link(task);
  l->input_known = false;
  l->cgroup = cgroups_.find(task).v2;
  if (const auto record = recorded(task); record && record->identity)
    l->uid = record->identity->uid;
  adopt_network(task);
  if (const Status closed = close_metadata(l->cgroup); !closed)
    log_debug("task {}: {}", task.value, closed.error().message);
  count_egress(task, l->cgroup);
  if (const auto found = dirs_.find(task))
    if (const auto meta = wire::from_json_text<TaskMeta>(found->meta)) {
      l->gpus = meta->gpus;
      watch_port(task, meta->port);
      disk_guard_.watch(task, meta->disk);
    }
  l->link.subscribe(supervise::Subscription::notify);
  l->link.request_status();
  l->rearm();
  if (const auto sought = sought_.extract(task))
    for (const auto& order : sought.mapped().orders)
      order();
}

// False: it never started, and may be started as if for the first time.
bool Tasks::recover_one(const FoundTask& task, RecoveredTask& recovered) {
  const auto meta = wire::from_json_text<TaskMeta>(task.meta);
  recovered.status.task = task.id;
  recovered.acknowledged = task.acknowledged;
  if (meta) {
    recovered.fenced = meta->fenced;
    recovered.paid_until = meta->paid_until;
    if (meta->port != 0)
      recovered.status.port_holder = PortHolder::nobody;  // until the next look
  }
  if (const auto text = read_file(rights_->notes(task.id) + "/meter", 4096))
    if (const auto saved = wire::from_json_text<SavedMeter>(*text)) {
      recovered.meter = saved->meter;
      recovered.metered_at = saved->at;
      if (saved->tunnelled > 0 && !task.acknowledged)
        tunnelled_[task.id].before = saved->tunnelled;
    }
  switch (task.presence) {
    case TaskPresence::never_started:
      (void)rights_->forget(task.id);
      return false;
    case TaskPresence::ended:
      if (meta && meta->bare && !task.acknowledged) {  // the node was not checked yet
        recovered.status.state = TaskState::running;
        loop_.post([this, id = task.id, exit = *task.exit] { ended(id, exit); });
        break;
      }
      recovered.status = status_of(task.id, *task.exit);
      if (!task.acknowledged)
        recovered.meter.egress_bytes =
            std::max(recovered.meter.egress_bytes, all_sent(task.id, cgroups_.find(task.id).v2));
      break;
    case TaskPresence::lost:
      if (task.acknowledged) {
        recovered.status = lost_status(task.id, system_clock().wall(), "its supervisor died");
        break;
      }
      recovered.status.state = TaskState::running;  // until its leftovers have ended
      loop_.post([this, id = task.id] { lost(id); });
      break;
    case TaskPresence::supervised:
      recover_running(task.id, recovered.status);
      break;
  }
  return true;
}

void Tasks::recover_running(TaskId task, TaskStatus& status) {
  status.state = TaskState::running;
  auto connected = rights_->connect(task, settle_patience);
  if (connected)
    adopt(task, std::move(*connected));
  else
    seek(task, {});  // not listening yet, or about to end
  const auto order = read_order(rights_->notes(task));
  if (!order)
    return;
  status.state = order->state();
  status.order = order->order;
  status.order_error = order->error;
  status.ram_mib = order->ram_mib;
  if (order->done)
    return;
  auto again = [this, task, order = *order] {
    suspender_.carry_out(task, order);
  };
  if (const auto sought = sought_.find(task); sought != sought_.end())
    sought->second.orders.emplace_back(std::move(again));
  else
    loop_.post(std::move(again));
}

Result<std::vector<RecoveredTask>> Tasks::recover() {
  std::vector<RecoveredTask> out;
  for (const FoundTask& task : BILLOW_TRY(dirs_.list()))
    if (RecoveredTask recovered; recover_one(task, recovered))
      out.push_back(std::move(recovered));
  migs_.sweep();
  std::vector<TaskId> live;
  for (const RecoveredTask& task : out)
    if (task.status.state != TaskState::ended)
      live.push_back(task.status.task);
  for (const OwnPlace* place : {&temporary_, &memory_})
    removal_.remove_left(place->path());
  secret_files_.remove_others(live);
  checkpointer_.forget_others(temporary_.path(), live);
  remove_other_hostfiles(temporary_.path(), live);
  return out;
}

}  // namespace billow::agent
