#include "core/sched/advice.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "core/sched/pass.h"

namespace billow::sched {
namespace {

using Impl = SchedIndex::Impl;

constexpr std::size_t reservations_named_max = 8;  // each is tried alone…
constexpr std::size_t short_queue = 50;            // …if at most so many jobs are queued
constexpr std::size_t tried_queue_max = 200;       // longer queues: the cause is read from
                                                   // the free capacity, because every waiting job
                                                   // asks
constexpr Duration submit_margin = seconds(30);    // between reading the advice and following it

// The number of plans that one answer may cost: long queues make long plans.
int plans_for(const Impl& index) {
  return index.queued.size() > 50'000 ? 4 : index.queued.size() > 5'000 ? 12 : 40;
}

// Changes the index for as long as the object lives.
class WhatIf {
 public:
  explicit WhatIf(Impl& index)
      : index_(index),
        version_(index.version),
        planned_version_(index.planned_version),
        planned_(index.planned) {}
  ~WhatIf() {
    index_.version = version_;
    index_.planned_version = planned_version_;
    index_.planned = std::move(planned_);
  }
  WhatIf(const WhatIf&) = delete;
  WhatIf& operator=(const WhatIf&) = delete;

  // A job id that no plan has used.
  bool starts(JobId id, WallTime now) {
    ++index_.version;
    const Plan p = Pass(index_, now, whole_plan).run();
    return std::ranges::any_of(p.starts, [&](const Start& s) { return s.job == id; });
  }

 private:
  Impl& index_;
  std::uint64_t version_, planned_version_;
  Plan planned_;
};

class Trials {
 public:
  Trials(Impl& index, const JobRequest& job, WallTime now)
      : index_(index), job_(job), now_(now), left_(plans_for(index)) {}

  // Whether the job would start now if it had been submitted with these changes.
  bool would_start(JobRequest changed) {
    if (left_ <= 0 || place(index_, class_of(index_, changed), changed.tasks).empty())
      return false;  // without free capacity no plan helps
    --left_;
    changed.id = JobId{UINT64_MAX};
    changed.order = UINT64_MAX;
    changed.submitted = now_;
    changed.eligible_at = {};
    changed.expected = changed.expected_max = {};  // no earlier run of the changed job is known
    WhatIf what_if(index_);
    index_.dequeue(job_.id);
    index_.enqueue(changed);
    const bool starts =
        what_if.starts(changed.id, now_) && what_if.starts(changed.id, now_ + submit_margin);
    index_.dequeue(changed.id);
    index_.enqueue(job_);
    return starts;
  }

 private:
  Impl& index_;
  const JobRequest& job_;
  WallTime now_;
  int left_;
};

// Rounds down to a duration that a person would write.
Duration rounded_down(Duration d) {
  const Duration unit = d >= hours(48)     ? hours(1)
                        : d >= hours(2)    ? minutes(10)
                        : d >= minutes(20) ? minutes(5)
                                           : minutes(1);
  return {d.ns / unit.ns * unit.ns};
}
std::string option_text(Duration d) {
  std::string text = format_duration(d);
  std::erase(text, ' ');
  return text;
}

// Time limits that would let the job end before a reservation begins or before the first job in
// line starts.
std::vector<Duration> time_limits(const Impl& index, const Plan& next, WallTime now) {
  std::vector<Duration> limits;
  const auto before = [&](WallTime at) {
    if (at > now + submit_margin)
      limits.push_back(rounded_down(at - now - submit_margin));
  };
  for (const auto& [id, r] : index.reservations)
    before(r.from);
  for (const Reserve& r : next.reserves)
    before(r.expected_start);
  std::erase_if(limits, [](Duration d) { return d < minutes(1); });
  std::ranges::sort(limits, std::greater<>{});
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  return limits;
}

// The same job, with a time limit or as a spot job.
std::string same_capacity(Impl& index, const JobRequest& job, Trials& trials, WallTime now) {
  std::vector<std::string> cures;
  for (const Duration limit : time_limits(index, Pass(index, now, whole_plan).run(), now)) {
    if (job.time_limit.ns > 0 && job.time_limit <= limit)
      continue;
    JobRequest j = job;
    j.time_limit = limit;
    if (!trials.would_start(j))
      continue;
    cures.push_back("--time " + option_text(limit));
    break;
  }
  if (!job.spot) {
    JobRequest j = job;
    j.spot = true;
    j.yields = Yields::by_requeue;
    if (trials.would_start(j))
      cures.push_back("--spot");
  }
  return cures.empty() ? std::string() : fmt::format("{} would start now", join(cures, " or "));
}

// The smallest step down that starts: preferred instead of required, any type, fewer nodes, fewer
// GPUs, a smaller share.
std::string smaller(const Impl& index, const JobRequest& job, Trials& trials) {
  JobRequest j = job;
  if (j.tasks > 1 && j.constraints.close_required) {
    j.constraints.close_required = false;
    if (trials.would_start(j))
      return "preferring closeness instead of requiring it would start it now";
  }
  if (!job.parts.empty())
    return {};
  j = job;
  if (!j.resources.gpu_types.empty()) {
    j.resources.gpu_types.clear();
    if (trials.would_start(j))
      return "any GPU type would start it now";
  }
  for (j = job; j.tasks > 1 && job.tasks - j.tasks < 64;) {
    --j.tasks;
    if (trials.would_start(j))
      return fmt::format("--nodes {} would start now", j.tasks);
  }
  std::int32_t cards_max = 0;
  for (const NodeState& n : index.nodes)
    cards_max = std::max(cards_max, static_cast<std::int32_t>(n.shape.gpus.size()));
  j = job;
  const std::int32_t least = std::max(1, job.resources.gpus / 4);
  for (std::int32_t gpus = std::min(job.resources.gpus - 1, cards_max); gpus >= least; --gpus) {
    j.resources.gpus = gpus;
    if (trials.would_start(j))
      return fmt::format("--gpus {} would start now", gpus);
  }
  // A part of a card stands in for one card at most: a job of eight does not run on a fifth of one.
  if (job.tasks == 1 && job.resources.gpus == 1 && job.resources.mig_profile.empty()) {
    for (std::int32_t milli = job.resources.share.milli - 100; milli >= 100; milli -= 100) {
      j.resources.share = {milli, 0};
      if (trials.would_start(j))
        return fmt::format("--gpus {:g} would start now", milli / 1000.0);
    }
  }
  return {};
}

}  // namespace

std::string what_would_start(const SchedIndex& wrapped, const JobRequest& job, WallTime now) {
  // A job that waits for a fixed place (a suspended image, a reservation that has not begun) gains
  // nothing from a different request.
  if (!job.constraints.only_nodes.empty() || job.reservation)
    return {};
  Impl& index = wrapped.impl();
  Trials trials(index, job, now);
  std::string text = same_capacity(index, job, trials, now);
  return text.empty() ? smaller(index, job, trials) : text;
}

const Reservation* kept_from_it(Impl& index, const JobRequest& job, WallTime now) {
  std::vector<ReservationId> ahead;
  for (const auto& [id, r] : index.reservations)
    if (r.until > now)
      ahead.push_back(id);
  if (ahead.empty())
    return nullptr;
  std::ranges::sort(
      ahead, {}, [&](ReservationId id) { return std::pair(index.reservations.at(id).from, id); });
  if (index.queued.size() > tried_queue_max) {
    const std::vector<Placement> free = place(index, class_of(index, job), job.tasks);
    const auto there = [&](ReservationId id) {
      return std::ranges::any_of(index.reservations.at(id).placements, [&](const Placement& p) {
        return std::ranges::find(free, p.node, &Placement::node) != free.end();
      });
    };
    const auto found = std::ranges::find_if(ahead, there);
    return found == ahead.end() ? nullptr : &index.reservations.at(*found);
  }
  WhatIf what_if(index);
  std::map<ReservationId, Reservation> all = std::move(index.reservations);
  index.reservations.clear();
  ReservationId found;
  if (what_if.starts(job.id, now)) {
    found = ahead.front();  // blame all of them together, unless one alone turns out to be enough
    const std::size_t tried =
        index.queued.size() > short_queue ? 0 : std::min(ahead.size(), reservations_named_max);
    for (std::size_t i = 0; ahead.size() > 1 && i < tried; ++i) {
      index.reservations = all;
      index.reservations.erase(ahead[i]);
      if (!what_if.starts(job.id, now))
        continue;
      found = ahead[i];
      break;
    }
  }
  index.reservations = std::move(all);
  return found ? &index.reservations.at(found) : nullptr;
}

}  // namespace billow::sched
