// When a waiting job will start if nothing new is submitted: the scheduler itself, played forward on a copy, through the ends of
// jobs as far as time limits and earlier runs tell. Bounded: where there is too much to play through, it says that it does not know.
#include <algorithm>

#include "sched/plan.h"

namespace billow::sched {
namespace {

constexpr std::size_t jobs_max = 4000;     // queued and running
constexpr int steps_max = 400;             // ends of jobs played through
constexpr int plans_max = 16;              // per step

// Zero: nobody knows.
WallTime end_of(const JobRequest& request, WallTime started, WallTime now) {
  if (request.time_limit.ns > 0) return std::max(started + request.time_limit, now);
  if (request.expected.ns <= 0) return {};
  const Duration elapsed = now - started;
  return started + (elapsed > request.expected ? elapsed * 3 / 2 : request.expected);
}

}  // namespace

WallTime forecast(const SchedIndex& index, JobId job, WallTime now) {
  if (!index.queued(job) || index.queued_count() + index.running_count() > jobs_max) return {};
  const IndexContents contents = index.contents();
  SchedIndex copy = SchedIndex::rebuild(contents);
  std::set<std::pair<WallTime, JobId>> ends;
  for (const RunningJob& r : contents.running) {
    if (r.leaving) ends.emplace(now, r.request.id);
    else if (const WallTime end = end_of(r.request, r.started, now)) ends.emplace(end, r.request.id);
  }
  std::set<WallTime> moments;  // when time alone changes something
  for (const Reservation& r : contents.reservations) {
    if (r.from > now) moments.insert(r.from);
    if (r.until > now) moments.insert(r.until);
  }
  for (const JobRequest& q : contents.queued)
    if (q.eligible_at > now) moments.insert(q.eligible_at);
  WallTime at = now;
  for (int step = 0; step < steps_max; ++step) {
    for (int round = 0; round < plans_max; ++round) {
      const Plan p = plan(copy, at);
      for (const Reserve& r : p.reserves)
        if (r.job == job && r.expected_start) return std::max(r.expected_start, now);
      for (const Start& s : p.starts) {
        if (s.job == job) return at;
        const auto request = copy.queued(s.job);
        copy.started(s.job, s.placements, at);
        if (!request) continue;
        if (const WallTime end = end_of(*request, at, at)) ends.emplace(std::max(end, at + milliseconds(1)), s.job);
      }
      for (const Preempt& v : p.preempts) {
        const RunningJob* victim = copy.running(v.victim);
        if (!victim) continue;
        const JobRequest again = victim->request;
        copy.ended(v.victim, at);
        std::erase_if(ends, [&](const auto& e) { return e.second == v.victim; });
        copy.enqueue(again);
      }
      if (p.starts.empty() && p.preempts.empty()) break;
    }
    WallTime next = ends.empty() ? WallTime{} : ends.begin()->first;
    if (const auto m = moments.upper_bound(at); m != moments.end() && (!next || *m < next)) next = *m;
    if (!next) return {};
    at = std::max(at, next);
    while (!ends.empty() && ends.begin()->first <= at) {
      copy.ended(ends.begin()->second, at);
      ends.erase(ends.begin());
    }
    for (const Reservation& r : contents.reservations)
      if (r.until <= at) copy.remove_reservation(r.id);
  }
  return {};
}

}  // namespace billow::sched
