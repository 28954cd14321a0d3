// Jobs, and those of them that wait.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "client/top/charts.h"
#include "client/top/list.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

enum class Show { active, running, waiting, idle, ended };
constexpr const char* show_names[job_shows] = {"active", "running", "waiting", "idle", "ended"};

enum JobColumn {
  job_label,
  job_name,
  job_user,
  job_project,
  job_state,
  job_gpus,
  job_time,
  job_cost,
  job_rate,
  job_use,
  job_past,
  job_where,
  job_reason
};

bool shown(const State& state, const JobEntry& job, Show show) {
  switch (show) {
    case Show::active:
      return !job.has_ended();
    case Show::running:
      return job.state == "running" && !job.has_ended();
    case Show::waiting:
      return job.waits();
    case Show::idle:
      return state.fleet.is_idle(job);
    case Show::ended:
      return job.has_ended();
  }
  return true;
}

Style state_style(const State& state, const JobEntry& job) {
  return {state.fleet.is_idle(job) ? Colour::yellow : colour_of_state(job.state)};
}

std::string reason_of(const State& state, const JobEntry& job) {
  const auto known = state.fleet.why.find(job.id);
  if (job.waits() && known != state.fleet.why.end())
    return known->second;
  return job.reason;
}

CellText job_cell(const State& state, const JobEntry& job, int column, int width) {
  switch (static_cast<JobColumn>(column)) {
    case job_label:
      return {job.array ? job.label + "[]" : job.label};
    case job_name:
      return {job.name};
    case job_user:
      return {job.user};
    case job_project:
      return {job.project};
    case job_state:
      return {state.fleet.is_idle(job) ? "idle" : job.state, state_style(state, job)};
    case job_gpus:
      return {gpus_text(job.gpu_milli)};
    case job_time:
      return {job.array ? "-" : lasting(job.spent_ms(state.now_ms))};
    case job_cost:
      return {usd(job.cost(state.now_ms))};
    case job_rate:
      return {job.rate_nano ? per_hour(job.rate_nano) : "-"};
    case job_use: {
      const auto busy = state.fleet.busy_of(job, state.now_ms);
      return {job.state == "running" && !busy.empty() ? percent(busy.back()) : "-"};
    }
    case job_past: {
      if (job.state != "running" || job.gpu_milli == 0)
        return {};
      return {sparkline(state.fleet.busy_of(job, state.now_ms), width, 100, state.utf8),
              {Colour::green}};
    }
    case job_where:
      return {state.fleet.places_of(job)};
    case job_reason:
      return {reason_of(state, job), {Colour::dim}};
  }
  return {};
}

std::int64_t job_value(const State& state, const JobEntry& job, int sort) {
  switch (sort) {
    case 1:
      return job.spent_ms(state.now_ms);
    case 2:
      return job.gpu_milli;
    case 3:
      return job.cost(state.now_ms);
    case 4:
      return job.rate_nano;
    default:
      return static_cast<std::int64_t>(job.id);
  }
}

using JobRows = std::shared_ptr<std::vector<const JobEntry*>>;

void fill_rows(List& out, const State& state, const JobRows& rows) {
  for (const JobEntry* job : *rows)
    out.rows.push_back({Subject::Kind::job, job->label, job->id});
  out.cell = [&state, rows](std::size_t row, std::size_t column, int width) {
    return job_cell(state, *(*rows)[row], static_cast<int>(column), width);
  };
}

bool job_matches(const State& state, const JobEntry& job) {
  return matches(state.list(), {job.label, job.name, job.user, job.project, job.state,
                                state.list().filter.empty() ? "" : state.fleet.places_of(job)});
}

enum WaitColumn {
  wait_place,
  wait_label,
  wait_name,
  wait_user,
  wait_project,
  wait_state,
  wait_gpus,
  wait_time,
  wait_reason
};

}  // namespace

List job_list(const State& state) {
  List out;
  out.of = "job";
  out.sorts = {"number", "time", "GPUs", "cost", "rate"};
  out.columns = {{"JOB", false, 0, 0, 0, 0},
                 {"NAME", false, 12},
                 {"USER", false, 6, 3},
                 {"PROJECT", false, 7, 6},
                 {"STATE"},
                 {"GPUS", true, 0, 1, 0, 2},
                 {"TIME", true, 0, 2, 0, 1},
                 {"COST", true, 0, 4, 0, 3},
                 {"RATE", true, 0, 5, 0, 4},
                 {"USE", true, 0, 8},
                 {"LAST MINUTES", false, 12, 9, 60},
                 {"WHERE", false, 16, 7},
                 {"REASON", false, 20, 10}};
  const ListState& list = state.list();
  const Show show = static_cast<Show>(std::clamp(list.show, 0, job_shows - 1));
  out.show = show_names[static_cast<int>(show)];
  auto rows = std::make_shared<std::vector<const JobEntry*>>();
  out.all = state.fleet.jobs.size() + state.fleet.ended.size();
  for (const auto& [id, job] : state.fleet.jobs)
    if (shown(state, job, show) && job_matches(state, job))
      rows->push_back(&job);
  for (const JobEntry& job : state.fleet.ended)
    if (shown(state, job, show) && job_matches(state, job))
      rows->push_back(&job);
  std::ranges::stable_sort(*rows, [&](const JobEntry* a, const JobEntry* b) {
    const auto x = job_value(state, *a, list.sort), y = job_value(state, *b, list.sort);
    return list.reverse ? x < y : x > y;
  });
  fill_rows(out, state, rows);
  out.nothing = !state.fleet.complete ? "waiting for the head …"
                : out.all == 0        ? "no job is waiting or running"
                                      : "no job matches; Esc shows all";
  return out;
}

List queue_list(const State& state) {
  List out;
  out.of = "waiting job";
  out.sorts = {"age", "GPUs", "user"};
  out.columns = {{"#", true},
                 {"JOB"},
                 {"NAME", false, 12},
                 {"USER", false, 6, 3, 0, 2},
                 {"PROJECT", false, 7, 4},
                 {"STATE"},
                 {"GPUS", true, 0, 1, 0, 1},
                 {"WAITS", true, 0, 2, 0, 0},
                 {"REASON", false, 12}};
  const ListState& list = state.list();
  auto rows = std::make_shared<std::vector<const JobEntry*>>();
  for (const auto& [id, job] : state.fleet.jobs) {
    if (!job.waits() && job.state != "suspended")
      continue;
    ++out.all;
    if (job_matches(state, job))
      rows->push_back(&job);
  }
  if (list.sort == 1)
    std::ranges::stable_sort(*rows, std::greater{}, &JobEntry::gpu_milli);
  else if (list.sort == 2)
    std::ranges::stable_sort(*rows, {}, &JobEntry::user);
  else
    std::ranges::stable_sort(*rows, {}, &JobEntry::submitted);
  if (list.reverse)
    std::ranges::reverse(*rows);
  fill_rows(out, state, rows);
  out.cell = [&state, rows](std::size_t row, std::size_t column, int width) -> CellText {
    const JobEntry& job = *(*rows)[row];
    switch (static_cast<WaitColumn>(column)) {
      case wait_place:
        return {fmt::format("{}", row + 1)};
      case wait_label:
        return job_cell(state, job, job_label, width);
      case wait_name:
        return {job.name};
      case wait_user:
        return {job.user};
      case wait_project:
        return {job.project};
      case wait_state:
        return {job.state, state_style(state, job)};
      case wait_gpus:
        return {gpus_text(job.gpu_milli)};
      case wait_time:
        return {lasting(job.spent_ms(state.now_ms))};
      case wait_reason:
        return {reason_of(state, job)};
    }
    return {};
  };
  out.nothing = !state.fleet.complete ? "waiting for the head …"
                : out.all             ? "no waiting job matches the filter; Esc clears it"
                                      : "no job waits";
  return out;
}

}  // namespace billow::client::top
