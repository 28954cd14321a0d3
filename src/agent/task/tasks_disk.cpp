// How much of the node's disk a task may use, where its files are, and what is said of one that
// used more.
#include <algorithm>

#include "agent/task/tasks.h"
#include "base/log.h"

namespace billow::agent {
namespace {

constexpr std::int64_t least_bytes = 1 << 20;
constexpr Duration stop_grace = seconds(10);  // not the job's own: it writes on meanwhile

}  // namespace

// Only what Billow gave it is counted: a job's own home directory and volumes have quotas of their
// own, if any.
Result<DiskLimit> Tasks::disk_limit(const Starting& s) const {
  if (s.start.bare)
    return DiskLimit{};
  DiskLimit out;
  out.bytes = s.start.disk_mib << 20;
  out.by = "--disk";
  if (out.bytes == 0) {
    const auto policy = s.rules.disk_bytes;
    // On a disk that is full, too, there is a limit.
    const DiskSpace space = disk_space(work_.path());
    out.by = policy ? "disk in the node's policy" : "half of what was free; ask with --disk";
    out.bytes = policy.value_or(space.free < 0 ? 0 : std::max(space.free / 2, least_bytes));
  }
  const std::string work = work_.below(std::to_string(s.start.task.value));
  if (s.spec.cwd == work || s.confined())
    out.places.push_back(work);
  if (!s.spec.private_tmp.empty())
    out.places.push_back(s.spec.private_tmp);
  if (!s.plan.checkpoint_local.empty())
    out.places.push_back(s.plan.checkpoint_local);
  if (s.prepared) {
    const container::Plan& plan = s.prepared->plan;
    out.places.push_back(container::scratch_dir(plan.store, plan.key));
    for (std::uint32_t rank = 0; plan.root && rank < s.start.procs; ++rank)
      out.places.push_back(
          container::scratch_dir(plan.store, plan.key + "." + std::to_string(rank)));
  }
  return out;
}

void Tasks::exceeds_disk(TaskId task, const std::string& why) {
  log_warn("stopping task {}: {}", task.value, why);
  perform(effect::StopTask{task, stop_grace, StopReason::disk});
}

void Tasks::tell_disk_exceeded(TaskStatus& status) {
  const std::string why = disk_guard_.why(status.task);
  disk_guard_.ended(status.task);
  if (!why.empty() && status.exit.kind == ExitKind::stopped)
    status.exit.message = why;
}

}  // namespace billow::agent
