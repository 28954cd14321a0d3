// Forecasts when a waiting job will start if nothing new is submitted. It runs the scheduler
// forward on a copy: through the ends of jobs, as far as time limits and earlier runs predict them,
// and through changes that time alone brings (reservations begin and end, jobs become eligible or
// starve). If jobs run exactly as long as declared, the forecast is exact; if they end earlier, the
// job may start earlier. The work is bounded: if there is too much to simulate, the forecast is
// that of the first plan, or unknown.
#include <algorithm>

#include "core/sched/plan.h"

namespace billow::sched {
namespace {

constexpr std::size_t jobs_max = 4000;      // queued and running
constexpr std::size_t steps_max = 400;      // moments simulated…
constexpr std::size_t looks_max = 200'000;  // …and jobs examined: the head waits for the answer
constexpr int plans_max = 16;               // per step
constexpr int starved_moments = 8;          // per job: when its level rises

// Zero if the end is unknown.
WallTime end_of(const JobRequest& request, WallTime started, WallTime now) {
  if (request.time_limit.ns > 0)
    return std::max(started + request.time_limit, now);
  if (request.expected.ns <= 0)
    return {};
  const Duration elapsed = now - started;
  return started + (elapsed > request.expected ? elapsed * 3 / 2 : request.expected);
}

class Player {
 public:
  Player(const SchedIndex& index, JobId job, WallTime now)
      : job_(job),
        now_(now),
        at_(now),
        contents_(index.contents()),
        copy_(SchedIndex::rebuild(contents_)) {
    for (const RunningJob& r : contents_.running) {
      if (r.leaving)
        ends_.emplace(now, r.request.id);
      else if (const WallTime end = end_of(r.request, r.started, now))
        ends_.emplace(end, r.request.id);
      time_matters(r.started + r.request.run_min);
      if (r.request.moves_after.ns > 0)
        time_matters(r.started + std::max(r.request.run_min, r.request.moves_after));
    }
    for (const Reservation& r : contents_.reservations) {
      time_matters(r.from);
      time_matters(r.until);
    }
    const Duration starve = contents_.settings.starve_after;
    for (const JobRequest& q : contents_.queued) {
      time_matters(q.eligible_at);
      for (int n = 1; starve.ns > 0 && q.submitted.ns > 0 && n <= starved_moments; ++n)
        time_matters(q.submitted + starve * n);
    }
  }

  WallTime play() {
    const std::size_t steps = std::clamp<std::size_t>(
        looks_max / (contents_.queued.size() + contents_.running.size() + 1), 20, steps_max);
    for (std::size_t step = 0; step < steps; ++step) {
      for (int round = 0; round < plans_max; ++round) {
        const Plan p = plan(copy_, at_);
        if (std::ranges::any_of(p.starts, [&](const Start& s) { return s.job == job_; }))
          return at_;
        for (const Reserve& r : p.reserves)
          if (step == 0 && r.job == job_)
            promised_ = r.expected_start;
        carry_out(p);
        if (p.starts.empty() && p.preempts.empty())
          break;
      }
      WallTime next = ends_.empty() ? WallTime{} : ends_.begin()->first;
      if (const auto m = moments_.upper_bound(at_); m != moments_.end() && (!next || *m < next))
        next = *m;
      if (!next)
        return {};
      move_to(std::max(at_, next));
    }
    return promised_;
  }

 private:
  void time_matters(WallTime at) {
    if (at > now_)
      moments_.insert(at);
  }

  void carry_out(const Plan& p) {
    for (const Preempt& v : p.preempts) {
      const RunningJob* victim = copy_.running(v.victim);
      if (!victim)
        continue;
      const JobRequest again = victim->request;
      copy_.ended(v.victim, at_);
      std::erase_if(ends_, [&](const auto& e) { return e.second == v.victim; });
      copy_.enqueue(again);
    }
    for (const Start& s : p.starts) {
      const auto request = copy_.queued(s.job);
      copy_.started(s.job, s.placements, at_);
      if (!request)
        continue;
      if (const WallTime end = end_of(*request, at_, at_))
        ends_.emplace(std::max(end, at_ + milliseconds(1)), s.job);
      time_matters(at_ + request->run_min);
      if (request->moves_after.ns > 0)
        time_matters(at_ + std::max(request->run_min, request->moves_after));
    }
  }

  void move_to(WallTime at) {
    at_ = at;
    for (; !ends_.empty() && ends_.begin()->first <= at_; ends_.erase(ends_.begin()))
      copy_.ended(ends_.begin()->second, at_);
    // A job that waited for capacity inside an ended reservation no longer starts by itself.
    for (const Reservation& r : contents_.reservations)
      if (r.until <= at_ && over_.insert(r.id).second)
        copy_.remove_reservation(r.id);
  }

  JobId job_;
  WallTime now_, at_, promised_;
  IndexContents contents_;
  SchedIndex copy_;
  std::set<std::pair<WallTime, JobId>> ends_;
  std::set<WallTime> moments_;  // when time alone changes something
  std::set<ReservationId> over_;
};

}  // namespace

WallTime forecast(const SchedIndex& index, JobId job, WallTime now) {
  if (!index.queued(job) || index.queued_count() + index.running_count() > jobs_max)
    return {};
  return Player(index, job, now).play();
}

}  // namespace billow::sched
