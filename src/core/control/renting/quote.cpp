#include "core/control/renting/quote.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/control/renting/offers.h"

namespace billow::control {
namespace {

constexpr Duration price_old_after = hours(24 * 90);
constexpr std::size_t start_quote_jobs_max = 4000;  // the head waits for the answer

bool among_starts(const sched::Plan& plan, JobId job) {
  return std::ranges::any_of(plan.starts, [&](const sched::Start& s) { return s.job == job; });
}

// Whether nodes that are here have enough free capacity for all tasks of the job.
bool starts_here(const State& state, const sched::JobRequest& request) {
  const Resources& r = request.resources;
  const std::int64_t milli = std::int64_t{1000} * r.gpus;
  std::int32_t nodes = 0;
  for (const auto& [id, node] : state.nodes) {
    const sched::NodeShape* shape = state.index.node(id);
    if (!shape || shape->use != sched::NodeUse::schedulable ||
        state.index.free_cpu_milli(id) < r.cpu_milli || state.index.free_mem_mib(id) < r.mem_mib ||
        state.index.free_disk_mib(id) < r.disk_mib)
      continue;
    const bool part = r.gpus == 1 && !r.share.whole();
    const bool free = r.takes_node() ? !state.tasks_on.contains(id)
                                     : state.index.free_milli(id) >= (part ? 1 : milli);
    if (free && sched::could_run(state.index, request, {*shape}).front())
      ++nodes;
  }
  return nodes >= request.tasks;
}

// What the members of a group would rent, if each had machines of its own: at most that.
std::optional<RentQuote> group_quote(const State& state, const Job& job, WallTime now) {
  auto copy = sched::SchedIndex::rebuild(state.index.contents());
  copy.enqueue(request_of(state, job));
  if (among_starts(sched::plan(copy, now), job.id))
    return std::nullopt;
  std::optional<RentQuote> sum;
  for (const JobSpec& part : parts_of(*job.spec)) {
    auto quote = rent_quote(state, part, job.project, now);
    if (!quote)
      continue;
    if (sum) {
      quote->per_hour += sum->per_hour;
      quote->text = sum->text + ", " + quote->text;
      quote->old_price = quote->old_price || sum->old_price;
    }
    sum = std::move(quote);
  }
  return sum;
}

}  // namespace

std::optional<RentQuote> rent_quote(const State& state,
                                    const JobSpec& spec,
                                    ProjectId project,
                                    WallTime now) {
  Job job;
  job.id = JobId(state.next_job);
  job.spec = std::make_shared<const JobSpec>(spec);
  job.project = project;
  job.submitted_at = now;
  if (!spec.roles.empty())
    return group_quote(state, job, now);
  std::optional<Source> best;
  std::int64_t best_price = INT64_MAX;
  for (const auto& [id, pool] : state.pools) {
    if (!pool.capabilities || !pool.capabilities->from_offers || pool.state != PoolState::active ||
        !pool.stopped.empty() || pool.denied_until > now)
      continue;
    for (const Source& source : sources_of(pool)) {
      const bool short_of_time = source.offer->spot && time_is_short(job, now, spec.time_limit);
      const std::int64_t price =
          price_per_useful_gpu(source, std::max<std::int64_t>(1, spec.resources.gpus));
      if (short_of_time || refusal_of(pool, *source.offer, now) || (best && price >= best_price) ||
          !fits(state, job, source))
        continue;
      best = source;
      best_price = price;
    }
  }
  if (!best || starts_here(state, request_of(state, job)))
    return std::nullopt;
  RentQuote quote;
  quote.pool = best->pool->name;
  quote.ask_above_h = best->pool->ask_above_h;
  quote.per_hour = {best->price().nano_usd_per_s * 3600 * spec.nodes};
  quote.text = offer_text(*best->offer);
  if (spec.nodes > 1) {
    quote.text = fmt::format("{} × {}", spec.nodes, quote.text);
    if (quote.per_hour.value > 0)
      quote.text +=
          fmt::format(": ${:.2f}/h in all", static_cast<double>(quote.per_hour.value) / 1e9);
  }
  quote.old_price = best->offer->priced_at && best->offer->priced_at + price_old_after < now;
  return quote;
}

std::optional<StartQuote> start_quote(
    const State& state, const JobSpec& spec, ProjectId project, UserId user, WallTime now) {
  if (state.index.queued_count() + state.index.running_count() > start_quote_jobs_max)
    return std::nullopt;
  Job job;
  job.id = JobId(state.next_job);
  job.spec = std::make_shared<const JobSpec>(spec);
  job.project = project;
  job.user = user;
  job.submitted_at = now;
  const sched::JobRequest request = request_of(state, job);
  if (const Status can = sched::feasible(state.index, request); !can)
    return StartQuote{.now = false, .reason = can.error().message};
  auto copy = sched::SchedIndex::rebuild(state.index.contents());
  copy.enqueue(request);
  if (among_starts(sched::plan(copy, now), job.id))
    return StartQuote{.now = true};
  const auto why = sched::explain(copy, job.id, now, sched::Advice::none);
  return StartQuote{.now = false, .reason = why.reasons.empty() ? "" : why.reasons.front().text};
}

bool starts_in_place_of(const State& state,
                        JobId queued,
                        const std::vector<JobId>& others,
                        WallTime now) {
  if (state.index.queued_count() + state.index.running_count() > start_quote_jobs_max ||
      !state.index.queued(queued) || among_starts(sched::plan(state.index, now), queued))
    return false;
  auto copy = sched::SchedIndex::rebuild(state.index.contents());
  for (const JobId other : others)
    if (copy.running(other))
      copy.ended(other, now);
  return among_starts(sched::plan(copy, now), queued);
}

}  // namespace billow::control
