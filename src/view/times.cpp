#include "view/times.h"

#include <algorithm>

namespace billow::view {
JobTimes times_of(const std::vector<LeaseRow>& closed, std::uint32_t nodes) {
  JobTimes sum;
  for (const LeaseRow& row : closed) {
    if (row.open || row.to < row.from)
      continue;
    Duration& into = row.price_class == enum_name(PriceClass::suspended) ? sum.suspended : sum.ran;
    into = into + (row.to - row.from);
  }
  const auto share = static_cast<std::int64_t>(std::max<std::uint32_t>(nodes, 1));
  return {sum.ran / share, sum.suspended / share};
}

JobTimes times_now(const control::State& state, const Job& job, JobTimes closed, WallTime billed) {
  Duration ran, suspended;
  for (const TaskId id : job.tasks) {
    const Task* task = state.find_task(id);
    if (!task || task->state == TaskState::ended || billed < task->lease_from)
      continue;
    Duration& into = task->price_class == PriceClass::suspended ? suspended : ran;
    into = std::max(into, billed - task->lease_from);
  }
  return {closed.ran + ran, closed.suspended + suspended};
}

bool held_before(const control::State& state, const Job& job) {
  if (job.attempt > 1)
    return true;
  if (job.attempt == 1 && job.tasks.empty())
    return true;  // back in the queue
  return std::any_of(job.tasks.begin(), job.tasks.end(), [&](TaskId id) {
    const Task* task = state.find_task(id);
    return task && task->lease_number > 0;
  });
}

}  // namespace billow::view
