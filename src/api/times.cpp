#include "api/times.h"

#include <algorithm>
#include <map>

namespace billow::api {
namespace {

constexpr std::size_t leases_max = 10'000;  // of one job

void set_times(Json& document, const JobTimes& times) {
  document.set("ran_s", times.ran.ns / 1'000'000'000);
  document.set("suspended_s", times.suspended.ns / 1'000'000'000);
}

}  // namespace

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

JobTimes times_now(const control::State& state, const Job& job, JobTimes closed, WallTime now) {
  Duration ran, suspended;
  for (const TaskId id : job.tasks) {
    const Task* task = state.find_task(id);
    if (!task || task->state == TaskState::ended || now < task->lease_from)
      continue;
    Duration& into = task->price_class == PriceClass::suspended ? suspended : ran;
    into = std::max(into, now - task->lease_from);
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

void with_times(CallPtr call,
                std::vector<Json> documents,
                std::function<void(std::vector<Json>)> fn) {
  struct Wanted {
    JobId job;
    std::uint32_t nodes;
  };
  std::vector<Wanted> wanted;
  for (const Json& document : documents)
    if (document["started_at"].is_string() && !document["ran_s"].is_number() &&
        document["leases"].uint_or(0) > 1)
      wanted.push_back({JobId(document["id"].uint_or(0)),
                        static_cast<std::uint32_t>(document["nodes"].uint_or(1))});
  if (wanted.empty())
    return fn(std::move(documents));
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), wanted]() -> Result<std::map<JobId, JobTimes>> {
        std::map<JobId, JobTimes> found;
        for (const Wanted& w : wanted)
          found[w.job] = times_of(BILLOW_TRY(queries.leases({.project = {},
                                                             .job = w.job,
                                                             .from = {},
                                                             .before = {},
                                                             .after = {},
                                                             .limit = leases_max})),
                                  w.nodes);
        return found;
      },
      [call, documents = std::move(documents),
       fn](Result<std::map<JobId, JobTimes>> found) mutable {
        if (!found)
          return call->fail(found.error());
        const auto& state = call->host.state();
        for (Json& document : documents) {
          const auto at = found->find(JobId(document["id"].uint_or(0)));
          if (at == found->end())
            continue;
          const Job* job = document["final"].bool_or(false) ? nullptr : state.find_job(at->first);
          set_times(document,
                    job ? times_now(state, *job, at->second, call->host.billed()) : at->second);
        }
        fn(std::move(documents));
      });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace billow::api
