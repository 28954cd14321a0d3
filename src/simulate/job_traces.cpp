// Reading the job traces of Muri (SIGCOMM'22) and Philly.
#include <algorithm>

#include <fmt/format.h>

#include "simulate/csv.h"
#include "simulate/simulate.h"

namespace billow::sched {

Result<std::vector<TraceJob>> read_muri(const std::string& path) {
  const TraceTable t = BILLOW_TRY(TraceTable::read(path));
  const auto id = BILLOW_TRY(t.column("job_id")), gpus = BILLOW_TRY(t.column("num_gpu")),
             submit = BILLOW_TRY(t.column("submit_time")),
             iterations = BILLOW_TRY(t.column("iterations")),
             model = BILLOW_TRY(t.column("model_name")),
             iteration_time = BILLOW_TRY(t.column("iteration_time"));
  std::vector<std::size_t> phases;
  for (const char* name : {"resource_time_0", "resource_time_1", "resource_time_2"}) {
    if (t.has(name))
      phases.push_back(BILLOW_TRY(t.column(name)));
  }
  // Overhead of the published system, even for a single job.
  constexpr double alone_slowdown = 1.015;
  std::vector<TraceJob> jobs;
  for (std::size_t r = 0; r < t.rows(); ++r) {
    TraceJob j;
    j.id = static_cast<std::int64_t>(BILLOW_TRY(t.number(r, id)));
    j.gpus = static_cast<std::int32_t>(BILLOW_TRY(t.number(r, gpus)));
    j.submit_s = BILLOW_TRY(t.number(r, submit)) / 1000.0;
    j.iteration_s = BILLOW_TRY(t.number(r, iteration_time)) * alone_slowdown / 1000.0;
    j.service_s = BILLOW_TRY(t.number(r, iterations)) * j.iteration_s;
    j.model = std::string(t.text(r, model));
    for (std::size_t c : phases)
      j.phases.push_back(BILLOW_TRY(t.number(r, c)) / 1000.0);
    if (j.gpus < 1 || j.iteration_s <= 0 || j.service_s <= 0)
      return fail(
          Code::invalid,
          fmt::format("{}:{}: a job needs at least one GPU and a positive time", path, r + 2));
    jobs.push_back(std::move(j));
  }
  return jobs;
}

Result<std::vector<TraceJob>> read_philly(const std::string& path) {
  const TraceTable t = BILLOW_TRY(TraceTable::read(path));
  const auto stamp = BILLOW_TRY(t.column("timestamp")), duration = BILLOW_TRY(t.column("duration")),
             gpus = BILLOW_TRY(t.column("num_gpus"));
  const bool clusters = t.has("cluster");
  const std::size_t cluster = clusters ? BILLOW_TRY(t.column("cluster")) : 0;
  std::vector<TraceJob> jobs;
  for (std::size_t r = 0; r < t.rows(); ++r) {
    TraceJob j;
    j.id = static_cast<std::int64_t>(r);
    j.gpus = static_cast<std::int32_t>(BILLOW_TRY(t.number(r, gpus)));
    j.submit_s = BILLOW_TRY(t.time_s(r, stamp));
    j.service_s = BILLOW_TRY(t.number(r, duration));
    j.iteration_s = 1;
    if (clusters)
      j.model = std::string(t.text(r, cluster));
    if (j.gpus < 1 || j.service_s <= 0)
      continue;  // jobs that never ran
    jobs.push_back(std::move(j));
  }
  if (jobs.empty())
    return fail(Code::invalid, path + " contains no job that ran");
  std::ranges::stable_sort(jobs, {}, &TraceJob::submit_s);
  const double first = jobs.front().submit_s;
  for (TraceJob& j : jobs)
    j.submit_s -= first;
  return jobs;
}

}  // namespace billow::sched
