#include "agent/task/suspender.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/observe/proc_stats.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "core/wire/codec.h"

namespace billow::agent {
namespace {

constexpr Duration look_every = seconds(1);
// Allowance for a process's CUDA context beside the slice, which is about 500 MiB on recent cards.
constexpr std::int64_t context_allowance_mib = 1024;
constexpr int over_looks_warn = 2, over_looks_stop = 6;

}  // namespace

Suspender::Suspender(net::Loop& loop, GpumemHost::Options gpumem, Callbacks callbacks)
    : loop_(loop),
      callbacks_(std::move(callbacks)),
      gpumem_(std::make_shared<GpumemHost>(std::move(gpumem))),
      timer_(loop.every(look_every, [this] { look(); })),
      workers_(loop, {.threads = 16, .queue_max = 4096}) {}

TaskPlan Suspender::prepare(const wire::agent_v1::Start& start,
                            const std::vector<GpuInfo>& cards,
                            bool simulated,
                            Environment& env) {
  TaskPlan plan;
  plan.gpus = !start.gpus.empty() && !simulated;
  static_cast<TaskHooks&>(plan) = start;
  if (start.gpus.empty())
    return plan;
  const bool mig = std::any_of(start.gpus.begin(), start.gpus.end(),
                               [](const GpuGrant& g) { return g.mig_start >= 0; });
  const bool slice = !mig && std::any_of(start.gpus.begin(), start.gpus.end(),
                                         [](const GpuGrant& g) { return !g.share.whole(); });
  if (mig)
    plan.unsuspendable = "it runs in a MIG instance";
  if (mig || start.time_sliced || (!slice && !start.suspendable))
    return plan;
  GpumemHost::Job job{
      .task = start.task, .limits = {}, .strict = start.strict, .suspendable = start.suspendable};
  for (std::size_t i = 0; i < start.gpus.size(); ++i) {
    job.limits.push_back({cards[i], start.gpus[i].share});
    if (slice)
      plan.gpu_mem_mib += start.gpus[i].share.mem_mib;
  }
  const auto added = gpumem_->add(job);
  if (!added) {
    // The job still runs, without this.
    if (!simulated) {
      log_warn("task {}: its GPU share is not enforced and it cannot be suspended: {}",
               start.task.value, added.error().message);
      plan.unsuspendable = added.error().message;
    }
    return plan;
  }
  plan.has_shim = true;
  plan.enforced = slice;
  for (const auto& [name, value] : *added) {
    std::string& entry = env[name];
    entry = name == "LD_PRELOAD" && !entry.empty() ? value + ":" + entry : value;
  }
  if (start.suspendable && gpumem_->arena_bytes() <= 0)
    plan.unsuspendable = "this node keeps no memory for suspended jobs (--vault-arena 0)";
  return plan;
}

void Suspender::began(TaskId task, TaskPlan plan) {
  if (const Status written =
          write_file_atomic(callbacks_.directory(task) + "/plan", wire::to_json_text(plan), 0600);
      !written)
    log_warn("task {}: {}", task.value, written.error().message);
  if (!plan.unsuspendable.empty())
    callbacks_.event(task_event::Declared{task, plan.unsuspendable});
  plans_[task] = std::move(plan);
}

void Suspender::adopted(TaskId task) {
  const auto text = read_file(callbacks_.directory(task) + "/plan");
  if (!text)
    return;
  if (auto plan = wire::from_json_text<TaskPlan>(*text)) {
    if (!plan->unsuspendable.empty())
      callbacks_.event(task_event::Declared{task, plan->unsuspendable});
    plans_[task] = std::move(*plan);
  }
}

void Suspender::ended(TaskId task) {
  const auto found = plans_.find(task);
  const bool has_shim = found == plans_.end() || found->second.has_shim;
  if (found != plans_.end())
    plans_.erase(found);
  over_.erase(task);
  frozen_.erase(task);
  // The memory of a suspended job may still be moving. The GPU memory service waits for it, so this
  // must not run on the loop.
  if (has_shim && gpumem_->unavailable().empty())
    (void)workers_.submit(
        [gpumem = gpumem_, task] {
          gpumem->remove(task);
          return 0;
        },
        [](int) {});
}

const TaskPlan* Suspender::plan(TaskId task) const {
  const auto found = plans_.find(task);
  return found == plans_.end() ? nullptr : &found->second;
}

void Suspender::leave() {
  gpumem_->end_if_idle();
}

void Suspender::keep(TaskId task, const OrderRecord& record) {
  if (const Status written = write_order(callbacks_.directory(task), record); !written)
    log_warn("task {}: {}", task.value, written.error().message);
}

namespace {

// The place is found on the loop, before the command waits for a thread: empty without a command.
struct PlacedHook {
  std::string command;
  Result<JobPlace> place;

  Status run() const {
    if (command.empty())
      return {};
    if (!place)
      return fail(Code::conflict,
                  fmt::format("`{}` was not run: {}", command, place.error().message));
    return run_hook({.command = command, .place = *place});
  }
};

}  // namespace

// On a worker.
Suspender::Outcome Suspender::take_memory(const Taking& taking) {
  if (!taking.plan.has_shim)
    return checkpoint_by_driver(taking);
  const auto all = taking.gpumem->look();
  if (!all)
    return {.error = all.error().message};
  const auto mine = std::find_if(all->begin(), all->end(), [&](const GpumemHost::Seen& seen) {
    return seen.task == taking.task;
  });
  if (mine == all->end())
    return {.error = "the GPU memory service does not know this task"};
  if (const std::string why = blocks_suspend(mine->features); !why.empty())
    return {.error = why};
  // A program that does not use CUDA, or not through the shim, has no memory that the GPU memory
  // service could move.
  if (mine->pids.empty())
    return checkpoint_by_driver(taking);
  const auto saved = taking.gpumem->suspend(taking.task, taking.mode);
  if (!saved)
    return {.error = saved.error().message};
  if (!saved->note.empty())
    log_warn("task {} was suspended warm: {}", taking.task.value, saved->note);
  return {.bytes = saved->bytes, .moved = true};
}

Suspender::Outcome Suspender::checkpoint_by_driver(const Taking& taking) {
  Outcome out;
  if (!taking.plan.gpus || !taking.gpu_memory)
    return out;
  for (const auto& [pid, mib] : taking.gpu_memory()) {
    if (std::find(taking.processes.begin(), taking.processes.end(), pid) == taking.processes.end())
      continue;
    out.pids.push_back(pid);
    out.bytes += mib << 20;
  }
  if (out.pids.empty())
    return out;
  if (const Status saved = taking.gpumem->checkpoint(out.pids); !saved)
    return {.error = saved.error().message};
  return out;
}

Suspender::Outcome Suspender::give_memory_back(GpumemHost& gpumem,
                                               TaskId task,
                                               const TaskPlan& plan,
                                               const OrderRecord& record) {
  if (!record.pids.empty()) {
    if (const Status back = gpumem.restore(record.pids); !back)
      return {.error = back.error().message};
  } else if (plan.has_shim && record.moved) {
    if (const auto back = gpumem.resume(task); !back)
      return {.error = back.error().message};
  }
  return {};
}

void Suspender::carry_out(TaskId task, OrderRecord record) {
  record.done = false;
  frozen_.insert(task);
  keep(task, record);
  const TaskPlan plan = plans_.contains(task) ? plans_.at(task) : TaskPlan{};
  if (!record.suspend && !callbacks_.freeze(task, false))
    return;  // it has ended, or its supervisor will be found again
  PlacedHook hook{record.suspend ? plan.suspend_hook : plan.resume_hook, JobPlace{}};
  if (!hook.command.empty())
    hook.place = callbacks_.place(task);
  Status queued;
  if (record.suspend) {
    Taking taking{gpumem_, callbacks_.gpu_memory, task,
                  plan,    record.mode,           callbacks_.processes(task)};
    queued = workers_.submit(
        [hook = std::move(hook), taking = std::move(taking)]() -> Outcome {
          if (const Status ran = hook.run(); !ran)
            return {.error = "its suspend hook: " + ran.error().message};
          return take_memory(taking);
        },
        [this, task, record](Outcome outcome) { suspended(task, record, std::move(outcome)); });
  } else {
    queued = workers_.submit(
        [hook = std::move(hook), gpumem = gpumem_, task, plan, record]() -> Outcome {
          Outcome out = give_memory_back(*gpumem, task, plan, record);
          if (!out.error.empty())
            return out;
          if (const Status ran = hook.run(); !ran)
            log_warn("task {}: its resume hook: {}", task.value, ran.error().message);
          return out;
        },
        [this, task, record](Outcome outcome) { resumed(task, record, std::move(outcome)); });
  }
  if (!queued)
    log_error("task {}: {}", task.value, queued.error().message);
}

void Suspender::suspended(TaskId task, OrderRecord record, Outcome outcome) {
  if (outcome.error.empty() && !callbacks_.freeze(task, true))
    return;
  record.done = true;
  record.error = outcome.error;
  record.pids = outcome.pids;
  record.moved = outcome.moved;
  if (!outcome.error.empty())
    frozen_.erase(task);
  if (outcome.error.empty()) {
    callbacks_.hold(task, false);
    record.ram_mib = (outcome.bytes + usage_of(callbacks_.processes(task)).rss_bytes) >> 20;
  }
  keep(task, record);
  callbacks_.event(task_event::Suspended{task, record.order, record.ram_mib, record.error});
}

void Suspender::resumed(TaskId task, OrderRecord record, Outcome outcome) {
  record.done = true;
  record.error = outcome.error;
  if (!outcome.error.empty())
    (void)callbacks_.freeze(task, true);
  else {
    frozen_.erase(task);
    callbacks_.hold(task, true);
  }
  keep(task, record);
  callbacks_.event(task_event::Resumed{task, record.order, record.error});
}

// Checks which features the programs use, and whether a slice holds more memory than it may, past
// the shim.
void Suspender::look() {
  const bool any = std::any_of(plans_.begin(), plans_.end(),
                               [](const auto& entry) { return entry.second.has_shim; });
  if (!any || looking_)
    return;
  looking_ = true;
  struct Found {
    std::vector<GpumemHost::Seen> tasks;
    std::map<int, std::int64_t> gpu_memory;
  };
  const bool slices = std::any_of(plans_.begin(), plans_.end(),
                                  [](const auto& entry) { return entry.second.enforced; });
  const Status queued = workers_.submit(
      [gpumem = gpumem_, gpu_memory = slices ? callbacks_.gpu_memory : nullptr]() -> Found {
        Found found;
        if (auto tasks = gpumem->look())
          found.tasks = std::move(*tasks);
        if (gpu_memory)
          found.gpu_memory = gpu_memory();
        return found;
      },
      [this](Found found) {
        looking_ = false;
        seen(found.tasks, found.gpu_memory);
      });
  if (!queued)
    looking_ = false;
}

void Suspender::seen(const std::vector<GpumemHost::Seen>& tasks,
                     const std::map<int, std::int64_t>& gpu_memory) {
  asleep_.clear();
  for (const GpumemHost::Seen& seen : tasks) {
    if (!seen.asleep.empty())
      asleep_[seen.task] = seen.asleep;
    const auto plan = plans_.find(seen.task);
    if (plan == plans_.end() || !plan->second.has_shim)
      continue;
    const std::string why = blocks_suspend(seen.features);
    if (!why.empty())
      callbacks_.event(task_event::Declared{seen.task, why});
    if (!plan->second.enforced || gpu_memory.empty())
      continue;
    std::int64_t held = 0, contexts = 0;
    for (int pid : callbacks_.processes(seen.task)) {
      const auto found = gpu_memory.find(pid);
      if (found == gpu_memory.end())
        continue;
      held += found->second;
      ++contexts;
    }
    const std::int64_t allowed = plan->second.gpu_mem_mib + contexts * context_allowance_mib;
    int& looks = over_[seen.task];
    looks = held > allowed ? looks + 1 : 0;
    const std::string text = fmt::format(
        "it holds {} MiB of GPU memory according to the driver, but its slice is {} MiB", held,
        plan->second.gpu_mem_mib);
    if (looks == over_looks_warn)
      log_warn("task {}: {}; it will be stopped if this continues", seen.task.value, text);
    if (looks == over_looks_stop)
      callbacks_.stop(seen.task, text);
  }
}

}  // namespace billow::agent
