// Forecasts when a waiting job will start if nothing new is submitted. It runs the scheduler
// forward on a copy: through the ends of jobs, as far as earlier runs and time limits predict them,
// and through changes that time alone brings (reservations begin and end, jobs become eligible or
// starve, budgets begin a new period). If jobs run as long as predicted, the forecast is exact; if
// they end earlier, the job may start earlier. latest_start() trusts time limits more than earlier
// runs. The work is bounded: if there is too much to simulate, the forecast is that of the first
// plan, or unknown.
#include <algorithm>
#include <span>
#include <utility>

#include "core/sched/index.h"
#include "core/sched/outlook.h"

namespace billow::sched {
namespace {

constexpr std::size_t jobs_max = 4000;        // queued and running
constexpr std::size_t steps_max = 400;        // moments simulated…
constexpr std::size_t looks_max = 200'000;    // …and jobs examined: the head waits for the answer
constexpr int plans_max = 16;                 // per step
constexpr int starved_moments = 8;            // per job: when its level rises
constexpr std::size_t varied_jobs_max = 400;  // above that, only the forecast is simulated
constexpr int early_ends = 4;                 // plays in which jobs end before their limits…
constexpr std::size_t rivals_max = 6;         // …and in which a more urgent job is submitted

// What differs from "nothing changes".
struct Variation {
  bool by_limits = false;        // jobs run until their limits, whatever earlier runs did
  std::uint64_t early_seed = 0;  // jobs end after a part of their time; 0: none does
  std::span<const JobRequest> rivals = {};  // submitted now, at the highest priority
};

// Zero if the end is unknown.
WallTime expected_end(const JobRequest& request, WallTime started, WallTime now, bool by_limits) {
  const bool limited = request.time_limit.ns > 0;
  const WallTime limit = std::max(started + request.time_limit, now);
  if (request.expected.ns <= 0 || (limited && by_limits))
    return limited ? limit : WallTime{};
  const Duration elapsed = now - started;
  const WallTime likely =
      started + (elapsed > request.expected ? elapsed * 3 / 2 : request.expected);
  return limited ? std::min(limit, likely) : likely;
}

// A fixed number between 0 and 999 for a job.
std::uint64_t mixed(std::uint64_t seed, JobId job) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15u + job.value;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return (x ^ (x >> 31)) % 1000;
}

class Player {
 public:
  Player(const SchedIndex& index,
         JobId job,
         WallTime now,
         const Admission* admission,
         Variation variation = {})
      : variation_(variation),
        admission_(admission ? admission->clone() : nullptr),
        job_(job),
        now_(now),
        at_(now),
        contents_(index.contents()),
        copy_(SchedIndex::rebuild(contents_)) {
    for (const RunningJob& r : contents_.running) {
      if (r.leaving)
        ends_.emplace(now, r.request.id);
      else if (const WallTime end = expected_end(r.request, r.started, now, variation_.by_limits))
        ends_.emplace(varied(r.request, now, end), r.request.id);
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
    for (const JobRequest& rival : variation_.rivals)
      copy_.enqueue(rival);
  }

  Outlook play() {
    const std::size_t steps = std::clamp<std::size_t>(
        looks_max / (contents_.queued.size() + contents_.running.size() + 1), 20, steps_max);
    for (std::size_t step = 0; step < steps; ++step) {
      for (int round = 0; round < plans_max; ++round) {
        const Plan p = plan(copy_, at_);
        for (const Reserve& r : p.reserves)
          if (step == 0 && r.job == job_)
            promised_ = r.expected_start;
        carry_out(p);
        if (out_.start)
          return std::move(out_);
        if (p.starts.empty() && p.preempts.empty())
          break;
      }
      WallTime next = ends_.empty() ? WallTime{} : ends_.begin()->first;
      if (const auto m = moments_.upper_bound(at_); m != moments_.end() && (!next || *m < next))
        next = *m;
      if (!next)
        return std::move(out_);
      move_to(std::max(at_, next));
    }
    if (!out_.refused)
      out_.start = promised_;
    return std::move(out_);
  }

 private:
  // Every other job ends early, at a fixed part of the time from `from` on.
  WallTime varied(const JobRequest& request, WallTime from, WallTime end) const {
    const std::uint64_t part =
        variation_.early_seed == 0 ? 1000 : mixed(variation_.early_seed, request.id) * 2;
    return part >= 1000 ? end : from + Duration{(end - from).ns / 1000 * static_cast<long>(part)};
  }

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
      end(v.victim);
      std::erase_if(ends_, [&](const auto& e) { return e.second == v.victim; });
      copy_.enqueue(again);
    }
    for (const Start& s : p.starts) {
      const auto request = copy_.queued(s.job);
      if (request && !may_start(*request, s.placements))
        continue;
      if (s.job == job_)
        out_.start = at_;
      copy_.started(s.job, s.placements, at_);
      if (!request)
        continue;
      if (const WallTime end = expected_end(*request, at_, at_, variation_.by_limits))
        ends_.emplace(std::max(varied(*request, at_, end), at_ + milliseconds(1)), s.job);
      time_matters(at_ + request->run_min);
      if (request->moves_after.ns > 0)
        time_matters(at_ + std::max(request->run_min, request->moves_after));
    }
  }

  // A job that may not start is held, and asks again at the next moment.
  bool may_start(const JobRequest& request, const std::vector<Placement>& placements) {
    if (!admission_)
      return true;
    const Status may = admission_->start(request.id, placements, at_);
    if (may)
      return true;
    if (request.id == job_ && !out_.refused) {
      out_.refused = may.error();
      out_.refused_at = at_;
    }
    copy_.dequeue(request.id);
    held_.push_back(request);
    if (const WallTime next = admission_->changes_after(at_))
      time_matters(next);
    return false;
  }

  void end(JobId job) {
    copy_.ended(job, at_);
    if (admission_)
      admission_->ended(job, at_);
  }

  void move_to(WallTime at) {
    at_ = at;
    for (; !ends_.empty() && ends_.begin()->first <= at_; ends_.erase(ends_.begin()))
      end(ends_.begin()->second);
    for (const JobRequest& held : std::exchange(held_, {}))
      copy_.enqueue(held);
    // A job that waited for capacity inside an ended reservation no longer starts by itself.
    for (const Reservation& r : contents_.reservations)
      if (r.until <= at_ && over_.insert(r.id).second)
        copy_.remove_reservation(r.id);
  }

  Variation variation_;
  std::unique_ptr<Admission> admission_;  // null: capacity alone decides
  JobId job_;
  WallTime now_, at_, promised_;
  Outlook out_;
  std::vector<JobRequest> held_;  // refused by the admission at this moment
  IndexContents contents_;
  SchedIndex copy_;
  std::set<std::pair<WallTime, JobId>> ends_;
  std::set<WallTime> moments_;  // when time alone changes something
  std::set<ReservationId> over_;
};

// Jobs that could still be submitted: like the ones that are here, the largest first, and more
// urgent than all of them.
std::vector<JobRequest> rivals_of(const IndexContents& contents, JobId job, WallTime now) {
  std::vector<JobRequest> out = contents.queued;
  for (const RunningJob& r : contents.running)
    out.push_back(r.request);
  std::int32_t priority = 0;
  for (const JobRequest& r : out)
    priority = std::max(priority, r.priority);
  std::erase_if(out, [&](const JobRequest& r) {
    return r.id == job || r.reservation || !r.constraints.only_nodes.empty() ||
           (r.time_limit.ns <= 0 && r.expected.ns <= 0);
  });
  const auto size = [](const JobRequest& r) {
    return gpu_milli_of(r);
  };
  std::ranges::stable_sort(out, [&](const JobRequest& a, const JobRequest& b) {
    return std::pair(size(a), a.time_limit.ns) > std::pair(size(b), b.time_limit.ns);
  });
  if (out.size() > rivals_max)
    out.resize(rivals_max);
  for (JobRequest& r : out) {
    const auto number = static_cast<std::uint64_t>(&r - out.data());
    r.id = JobId{UINT64_MAX - number};
    r.order = UINT64_MAX - number;
    r.priority = priority + 1;
    r.submitted = now;
    r.eligible_at = {};
    r.spot = false;
    r.yields = Yields::never;
    r.moves = false;
  }
  return out;
}

}  // namespace

Outlook outlook(const SchedIndex& index, JobId job, WallTime now, const Admission* admission) {
  if (!index.queued(job) || index.queued_count() + index.running_count() > jobs_max)
    return {};
  return Player(index, job, now, admission).play();
}

WallTime forecast(const SchedIndex& index, JobId job, WallTime now) {
  return outlook(index, job, now, nullptr).start;
}

WallTime latest_start(const SchedIndex& index,
                      JobId job,
                      WallTime now,
                      const Admission* admission) {
  WallTime latest = outlook(index, job, now, admission).start;
  if (!latest || index.queued_count() + index.running_count() > varied_jobs_max)
    return {};
  const auto also = [&](Variation variation) {
    variation.by_limits = true;
    // A rival without end tells nothing: then the answer is that of the others.
    if (const WallTime start = Player(index, job, now, admission, variation).play().start)
      latest = std::max(latest, start);
  };
  also({});
  for (int n = 1; n <= early_ends; ++n)
    also({.early_seed = static_cast<std::uint64_t>(n)});
  const std::vector<JobRequest> rivals = rivals_of(index.contents(), job, now);
  for (const JobRequest& rival : rivals)
    also({.rivals = {&rival, 1}});
  // Several at once, and while others end early.
  const std::span<const JobRequest> largest = std::span(rivals).first(std::min(rivals.size(), 4uz));
  also({.rivals = largest});
  also({.early_seed = 1, .rivals = largest});
  return latest;
}

}  // namespace billow::sched
