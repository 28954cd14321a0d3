#include "view/holders.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/relative_time.h"
#include "base/text.h"
#include "core/sched/words.h"
#include "view/json_parts.h"
#include "view/waiting.h"

namespace billow::view {
namespace {

constexpr std::size_t named_max = 5;

std::string job_text(const control::State& state, JobId id) {
  const Job* job = state.find_job(id);
  const std::string name = job ? job->spec->name : "";
  return name.empty() ? fmt::format("job {}", id.value)
                      : fmt::format("job {} ({})", id.value, name);
}

// "which is running", or how far an array is.
std::string progress_text(const control::State& state, JobId id) {
  if (const Job* job = state.find_job(id))
    return fmt::format("which is {}", enum_name(job->state));
  std::size_t left = 0;
  for (auto at = state.jobs.lower_bound(JobId(id.value + 1));
       at != state.jobs.end() && at->second.array == id; ++at)
    ++left;
  return left > 0 ? fmt::format("of which {} have not ended yet",
                                sched::plural(static_cast<std::int64_t>(left), "element"))
                  : "";
}

// Whether the job could use a card of this type.
bool could_use(const Job& job, const std::string& type) {
  const auto& types = job.spec->resources.gpu_types;
  return types.empty() || std::ranges::find(types, type) != types.end();
}

struct Holder {
  const Job* job = nullptr;
  std::int64_t milli = 0;
  WallTime ends_at;      // zero: not known
  bool certain = false;  // by its time limit, not by earlier runs
};

std::int64_t milli_held(const control::State& state, const Job& holder, const Job& waiting) {
  std::int64_t milli = 0;
  for (const TaskId id : holder.tasks) {
    const Task* task = state.find_task(id);
    const auto node = task && task->state != TaskState::ended && task->state != TaskState::suspended
                          ? state.nodes.find(task->node)
                          : state.nodes.end();
    if (node == state.nodes.end())
      continue;
    for (const GpuGrant& grant : task->gpus) {
      const auto& cards = node->second.offer.gpus;
      const auto index = static_cast<std::size_t>(grant.gpu);
      if (index < cards.size() && could_use(waiting, cards[index].type))
        milli += grant.share.milli;
    }
  }
  return milli;
}

std::vector<Holder> holders_of(const control::State& state, const Job& job) {
  std::vector<Holder> out;
  std::set<JobId> seen;
  for (const auto& [id, task] : state.tasks) {
    if (task.gpus.empty() || !seen.insert(task.job).second)
      continue;
    const Job* holder = state.find_job(task.job);
    if (!holder || holder->id == job.id)
      continue;
    Holder one{.job = holder, .milli = milli_held(state, *holder, job)};
    if (one.milli == 0)
      continue;
    if (const sched::RunningJob* running = state.index.running(holder->id)) {
      const sched::JobRequest& r = running->request;
      one.certain = r.time_limit.ns > 0;
      if (one.certain || r.expected.ns > 0)
        one.ends_at = running->started + (one.certain ? r.time_limit : r.expected);
    }
    out.push_back(one);
  }
  std::ranges::sort(out, [](const Holder& a, const Holder& b) {
    if (a.ends_at != b.ends_at)
      return a.ends_at && (!b.ends_at || a.ends_at < b.ends_at);
    return a.job->id < b.job->id;
  });
  return out;
}

std::string gpus_held(std::int64_t milli) {
  return sched::gpus_text(milli) + (milli == whole_gpu_milli ? " GPU" : " GPUs");
}

std::string end_of(const Holder& holder, WallTime now) {
  if (!holder.ends_at)
    return "no time limit";
  return fmt::format("ends {} {}", holder.certain ? "at the latest" : "probably",
                     relative_time(holder.ends_at, now, Zone::utc));
}

}  // namespace

std::string dependencies_text(const control::State& state, const Job& job) {
  if (job.state != JobState::held || job.spec->after.empty())
    return {};
  std::vector<std::string> named;
  std::size_t more = 0;
  for (const Dependency& after : job.spec->after) {
    const std::string progress = progress_text(state, after.job);
    if (progress.empty())
      continue;  // it has ended
    if (named.size() == named_max)
      ++more;
    else
      named.push_back(job_text(state, after.job) + ", " + progress);
  }
  if (named.empty())
    return {};
  return "waits for " + join(named, "; ") + (more > 0 ? fmt::format("; and {} more", more) : "");
}

Json holders_document(const control::State& state, const Job& job, WallTime now) {
  Json out = Json::array();
  if (job.spec->resources.gpus == 0)
    return out;
  std::int64_t others_milli = 0;
  std::size_t others = 0;
  for (const Holder& holder : holders_of(state, job)) {
    if (holder.job->project != job.project || out.items().size() >= named_max) {
      others_milli += holder.milli;
      ++others;
      continue;
    }
    const auto user = state.users.find(holder.job->user);
    const std::string who = user == state.users.end() ? "" : user->second.name;
    out.push(
        Json::object({{"job", holder.job->id.value},
                      {"name", holder.job->spec->name},
                      {"user", who},
                      {"gpus", static_cast<double>(holder.milli) / 1000},
                      {"ends_at", time_or_null(holder.ends_at)},
                      {"certain", holder.certain},
                      {"text", fmt::format("{} of {}: {}, {}", job_text(state, holder.job->id), who,
                                           gpus_held(holder.milli), end_of(holder, now))}}));
  }
  if (others > 0)
    out.push(Json::object(
        {{"job", Json()},
         {"name", ""},
         {"user", ""},
         {"gpus", static_cast<double>(others_milli) / 1000},
         {"ends_at", Json()},
         {"certain", false},
         {"text", fmt::format("{} {}: {}", others, others == 1 ? "other job" : "other jobs",
                              gpus_held(others_milli))}}));
  return out;
}

std::size_t jobs_ahead(const control::State& state, const Job& job) {
  std::size_t ahead = 0;
  for (const auto& [id, other] : state.jobs)
    ahead += waits(other) && id != job.id && other.spec->priority >= job.spec->priority &&
             (other.submitted_at < job.submitted_at ||
              (other.submitted_at == job.submitted_at && id < job.id));
  return ahead;
}

}  // namespace billow::view
