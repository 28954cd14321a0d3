// A reservation has ended while jobs run inside it. They continue as on-demand jobs at the
// on-demand price: from the second of the end each task has a new lease, so that a short
// reservation is not a cheap way to run long jobs. A budget that cannot bear the new price suspends
// or stops them like any job. Jobs that wait or are suspended inside continue only on request: they
// were submitted at the reserved price and have not begun to pay another.
#include "core/control/outlive.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/relative_time.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/money.h"

namespace billow::control {
namespace {

// The task's price without its reservation.
Rate own_rate(const State& state, const Job& job, const Task& task, const Context& context) {
  const auto node = state.nodes.find(task.node);
  if (task.gpus.empty() || !context.prices)
    return {};
  const auto gpu = static_cast<std::size_t>(task.gpus.front().gpu);
  // The card is no longer offered, so no other price is known.
  if (node == state.nodes.end() || gpu >= node->second.offer.gpus.size())
    return task.rate;
  return charge_rate(state, node->second, node->second.offer.gpus[gpu].type,
                     job.spec->spot ? PriceClass::spot : PriceClass::on_demand, context.prices);
}

void go_on(const State& state,
           const Job& job,
           WallTime at,
           const Context& context,
           Purse& purse,
           std::vector<EventBody>& events) {
  Rate rate;
  ReservationId over;
  for (TaskId id : job.tasks) {
    const Task& task = state.tasks.at(id);
    if (task.state == TaskState::ended)
      continue;
    TaskRerated rerated{.task = id,
                        .lease_to = outlives_from(task, at, context),
                        .cost = {},
                        .rate = own_rate(state, job, task, context),
                        .price_class = job.spec->spot ? PriceClass::spot : PriceClass::on_demand};
    rerated.cost = ledger::lease_cost(task, rerated.lease_to);
    rate.nano_usd_per_s += rerated.rate.nano_usd_per_s * ledger::gpu_milli(task) / 1000;
    over = task.reservation;
    events.push_back(rerated);
  }
  const std::string price =
      rate.nano_usd_per_s > 0 ? fmt::format(", {}", format_rate_per_hour(rate)) : "";
  events.push_back(ReservationLeft{
      job.id, fmt::format("its reservation {} has ended: since {} it runs at the on-demand price{}",
                          over.value, utc_minute(at), price)});
  if (job.stopping != StopCause::none)
    return;
  if (const Status paid = purse.go_on(job, rate); !paid)
    put_aside(state, events, job, SuspendCause::budget,
              fmt::format("budget: its reservation {} has ended, and {}", over.value,
                          paid.error().message));
}

}  // namespace

WallTime outlives_from(const Task& task, WallTime reservation_end, const Context& context) {
  return std::max(std::min(reservation_end - (context.now - context.billed), context.billed),
                  task.lease_from);
}

std::vector<EventBody> outlive(const State& state,
                               ReservationId reservation,
                               WallTime at,
                               const Context& context) {
  std::vector<JobId> jobs;
  for (const auto& [id, task] : state.tasks) {
    if (task.state == TaskState::ended || task.price_class != PriceClass::reserved)
      continue;
    if (reservation ? task.reservation == reservation
                    : !state.reservations.contains(task.reservation))
      jobs.push_back(task.job);
  }
  std::vector<EventBody> events;
  if (jobs.empty())
    return events;
  std::ranges::sort(jobs);
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  Purse purse(state, context.billed);
  for (JobId id : jobs)
    go_on(state, state.jobs.at(id), at, context, purse, events);
  return events;
}

void Applier::operator()(const TaskRerated& e) {
  Task& t = task(e.task);
  t.lease_from = e.lease_to;
  ++t.lease_number;
  t.rate = e.rate;
  t.price_class = e.price_class;
  t.reservation = {};
  job(t.job).cost += e.cost;
}

void Applier::operator()(const ReservationLeft& e) {
  Job& j = job(e.job);
  j.left_reservation = true;
  const bool resumes =
      j.state == JobState::suspended && j.suspension.resume_wanted && j.stopping == StopCause::none;
  if (j.state == JobState::queued || resumes)
    state.index.enqueue(request_of(state, j));
  if (j.state != JobState::running)
    return;
  state.index.left_reservation(j.id);
  if (j.reason.empty())
    j.reason = e.reason;
}

}  // namespace billow::control
