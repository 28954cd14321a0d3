// The control group of a task: what it may use of the node, and which devices it may open.
#include <set>

#include <fmt/format.h>

#include "agent/isolate/device_guard.h"
#include "agent/task/tasks.h"
#include "base/log.h"

namespace billow::agent {

// The memory of a task that asks for none: its part of the node, by GPUs or by cores.
std::int64_t Tasks::fair_memory(const wire::agent_v1::Start& start) const {
  std::int64_t gpu_milli = 0;
  for (const GpuGrant& grant : start.gpus)
    gpu_milli += grant.share.milli;
  return fair_memory_mib({.node_mib = host_.memory_usable_mib,
                          .gpu_milli = gpu_milli,
                          .node_gpu_milli = static_cast<std::int64_t>(options_.gpus.size()) * 1000,
                          .cpu_milli = start.cpu_milli,
                          .node_cpu_milli = host_.cpus_usable * 1000ll});
}

// The control group of a job that has the whole node has no limits: it only tells which processes
// are the job's.
CgroupLimits Tasks::limits_of(const wire::agent_v1::Start& start) const {
  const std::int64_t processes = start.surroundings.processes_max;
  return {.cpu_milli = start.bare ? 0 : start.cpu_milli,
          .mem_mib = start.bare          ? 0
                     : start.mem_mib > 0 ? start.mem_mib
                                         : fair_memory(start),
          .pids_max = processes > 0 || start.bare ? processes : default_processes_max()};
}

Status Tasks::limit(Starting& s) {
  const wire::agent_v1::Start& start = s.start;
  if (rights_->of_helper()) {  // it has made them, and closes the devices when the task starts
    s.group = cgroups_.find(start.task);
    return {};
  }
  auto made = cgroups_.create(start.task, limits_of(start));
  if (made)
    s.group = std::move(*made);
  else
    log_warn("task {}: no control group: {}", start.task.value, made.error().message);
  const Status closed = close_devices(s);
  if (!closed && s.rules.devices_closed)
    return fail(Code::unsupported,
                "this node cannot keep the job from GPUs that it does not have, as its policy "
                "demands: " +
                    closed.error().message);
  // The device controller alone may have made one: it holds only who is in it.
  if (!made && s.group.empty())
    return {};
  if (!closed && !s.group.empty())
    log_warn("task {}: only its private /dev keeps it from other GPUs: {}", start.task.value,
             closed.error().message);
  s.group.apply_to(s.spec);
  if (s.spec.cgroup_memory.empty())
    s.spec.cgroup_memory = cgroups_.shared_oom_counter();
  return {};
}

// GPUs that it does not have: by a program on its v2 group or, without v2, by v1's own controller.
Status Tasks::close_devices(Starting& s) const {
  const std::set<int> granted(s.granted.indices.begin(), s.granted.indices.end());
  const bool has_all = granted.size() == options_.gpus.size();
  if (s.rules.devices_closed && !has_all && options_.sim_state_dir.empty()) {
    if (s.start.bare)
      return fail(Code::unsupported, "it would have the whole node, but not all GPUs were granted");
    if (sandbox_.kind() == SandboxKind::variables_only)
      return fail(Code::unsupported, "the agent may not give it a private /dev");
  }
  const auto denied = device_numbers(s.spec.hide_devices);
  if (denied.empty() || (!s.group.v2.empty() && deny_devices(s.group.v2, denied)))
    return {};
  return cgroups_.deny_devices(s.start.task, denied, s.group);
}

}  // namespace billow::agent
