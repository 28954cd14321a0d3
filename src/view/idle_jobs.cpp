#include "view/idle_jobs.h"

#include <algorithm>
#include <unordered_set>

#include "core/ledger/meter.h"

namespace billow::view {
namespace {

const wire::agent_v1::TaskReading* reading_of(TaskId task, const wire::agent_v1::Heartbeat* beat) {
  if (!beat)
    return nullptr;
  const auto found = std::find_if(beat->tasks.begin(), beat->tasks.end(),
                                  [&](const auto& r) { return r.task == task; });
  return found == beat->tasks.end() ? nullptr : &*found;
}

}  // namespace

std::string asleep_text(TaskId task, const wire::agent_v1::Heartbeat* beat) {
  const auto* reading = reading_of(task, beat);
  return reading ? reading->asleep_text : std::string();
}

std::string idle_text(const control::State& state,
                      TaskId task,
                      const wire::agent_v1::Heartbeat* beat) {
  const auto said = state.money.idling.find(task);
  if (said == state.money.idling.end())
    return {};
  const auto* reading = reading_of(task, beat);
  return reading && !reading->idle_text.empty() ? reading->idle_text : said->second.text;
}

std::map<JobId, IdleJob> idle_jobs(const control::State& state, const Readings& readings) {
  std::map<JobId, IdleJob> out;
  std::unordered_set<JobId> works;
  for (const auto& [id, task] : state.tasks) {
    const std::int64_t milli = ledger::gpu_milli(task);
    if (task.state == TaskState::ended || milli == 0 || works.contains(task.job))
      continue;
    const auto* beat = readings(task.node);
    const auto* reading = reading_of(id, beat);
    const auto said = state.money.idling.find(id);
    const Duration quiet =
        reading && reading->quiet_s >= 0 ? seconds(reading->quiet_s) : Duration{};
    if (task.state != TaskState::running ||
        (said == state.money.idling.end() && quiet < idle_from)) {
      works.insert(task.job);
      out.erase(task.job);
      continue;
    }
    const auto [at, fresh] = out.try_emplace(task.job);
    IdleJob& job = at->second;
    job.quiet = fresh ? quiet : std::min(job.quiet, quiet);
    job.nano_usd_per_s += task.rate.nano_usd_per_s * ledger::charged_milli(task) / 1000;
    job.gpu_milli += milli;
    if (said != state.money.idling.end() && said->second.state == IdleState::hung)
      job.state = IdleState::hung;
    if (job.text.empty())
      job.text = idle_text(state, id, beat);
  }
  return out;
}

}  // namespace billow::view
