// What `billow explain` promises must come true: every change that "would start now" does, and a
// job starts when the forecast said.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "fleet.h"

namespace billow::sched {
using namespace test;
namespace {

// A change as explain() words it, made to the request.
std::vector<JobRequest> follow(const std::string& advice, const JobRequest& job) {
  std::vector<JobRequest> changed;
  const auto options = advice.substr(0, advice.find(" would start"));
  if (options.empty() || options == advice)
    return changed;
  std::size_t at = 0;
  while (at != std::string::npos) {
    const std::size_t next = options.find(" or ", at);
    const std::string option = options.substr(at, next == std::string::npos ? next : next - at);
    at = next == std::string::npos ? next : next + 4;
    JobRequest j = job;
    const std::string value =
        option.find(' ') == std::string::npos ? "" : option.substr(option.find(' ') + 1);
    if (option.starts_with("--time "))
      j.time_limit = *parse_duration(value);
    else if (option == "--spot") {
      j.spot = true;
      j.yields = Yields::by_requeue;
    } else if (option.starts_with("--nodes "))
      j.tasks = std::stoi(value);
    else if (option.starts_with("--gpus ") && std::stod(value) >= 1)
      j.resources.gpus = std::stoi(value);
    else if (option.starts_with("--gpus ")) {
      j.resources.gpus = 1;
      j.resources.share = {static_cast<std::int32_t>(std::lround(std::stod(value) * 1000)), 0};
    } else if (option == "any GPU type")
      j.resources.gpu_types.clear();
    else if (option.starts_with("preferring closeness"))
      j.constraints.close_required = false;
    else
      ADD_FAILURE() << "advice that nobody could follow: " << advice;
    changed.push_back(j);
  }
  return changed;
}

TEST(Advice, RespectsReservations) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  index.enqueue(job(1, 1));
  carry_out(index, plan(index, t0), t0);
  reserve(index, 1, 4, t0 + hours(1), t0 + hours(3));
  index.enqueue(job(2, 6));
  const Explanation e = explain(index, JobId{2}, t0);
  EXPECT_EQ(e.reasons.at(0).kind, ReasonKind::reserved);
  // Five would have room now and stand in the way in an hour.
  EXPECT_EQ(e.would_start_now, "--time 55m or --spot would start now");
  // Job 1 never ends as far as anybody knows: three GPUs are left beside it and the reservation,
  // seven after it.
  EXPECT_EQ(forecast(index, JobId{2}, t0), t0 + hours(3));
}

TEST(Advice, SuggestsFewerGpusIfSpotOrTimeDoNotHelp) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  index.enqueue(job(1, 1));
  carry_out(index, plan(index, t0), t0);
  reserve(index, 1, 4, t0 + seconds(40), t0 + hours(3));
  index.enqueue(job(2, 6));
  EXPECT_EQ(explain(index, JobId{2}, t0).would_start_now, "--gpus 3 would start now");
}

TEST(AdviceProperty, EverySuggestedChangeStartsTheJob) {
  int followed = 0, by_time = 0, silent = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fleet f(seed);
    for (int i = 0; i < 6; ++i) {
      JobRequest j = f.random_job();
      if (f.rng.chance(0.5))
        j.time_limit = minutes(f.rng.between(10, 400));
      f.index.enqueue(j);
      carry_out(f.index, plan(f.index, f.now), f.now);
      if (HasFatalFailure())
        return;
    }
    f.reservations();
    for (int i = 0; i < 4; ++i) {
      JobRequest j = f.random_job();
      if (f.rng.chance(0.3))
        j.time_limit = minutes(f.rng.between(10, 400));
      f.index.enqueue(j);
    }
    carry_out(f.index, plan(f.index, f.now), f.now);
    if (HasFatalFailure())
      return;
    for (const JobRequest& waiting : f.index.contents().queued) {
      const IndexContents before = f.index.contents();
      const Plan planned = plan(f.index, f.now);
      const Explanation e = explain(f.index, waiting.id, f.now);
      ASSERT_TRUE(before == f.index.contents()) << "asking changes nothing";
      ASSERT_TRUE(f.index.check_invariants());
      ASSERT_EQ(planned, plan(f.index, f.now));
      if (e.reasons.at(0).kind == ReasonKind::infeasible)
        continue;  // what it says then is what could run at all
      const auto changes = follow(e.would_start_now, waiting);
      silent += changes.empty();
      for (JobRequest changed : changes) {
        SchedIndex other = SchedIndex::rebuild(before);
        other.dequeue(waiting.id);
        changed.id = JobId{++f.next + 1'000'000};
        changed.order = changed.id.value;
        const WallTime later = f.now + seconds(20);  // somebody has to type it
        changed.submitted = later;
        other.enqueue(changed);
        ASSERT_TRUE(started_by(plan(other, later), changed.id))
            << "job " << waiting.id.value << ": " << e.would_start_now;
        ++followed;
        by_time += changed.time_limit != waiting.time_limit;
      }
    }
  }
  EXPECT_GT(followed, 80);
  EXPECT_GT(by_time, 10);
  EXPECT_GT(silent, 10);
}

// The fleet as it goes on: jobs run exactly as long as they said, and the head plans whenever
// something happens.
WallTime starts_at(SchedIndex& index, JobId id, WallTime now) {
  std::set<std::pair<WallTime, JobId>> ends;
  for (const RunningJob& r : index.contents().running)
    ends.emplace(r.started + r.request.time_limit, r.request.id);
  for (int step = 0; step < 2000; ++step) {
    for (int round = 0; round < 20; ++round) {
      const Plan p = plan(index, now);
      if (started_by(p, id))
        return now;
      for (const Start& s : p.starts)
        ends.emplace(now + index.queued(s.job)->time_limit, s.job);
      for (const Preempt& v : p.preempts)
        std::erase_if(ends, [&](const auto& e) { return e.second == v.victim; });
      carry_out(index, p, now);
      if (p.empty())
        break;
    }
    WallTime next = ends.empty() ? WallTime{} : ends.begin()->first;
    for (const Reservation& r : index.contents().reservations)
      for (const WallTime t : {r.from, r.until})
        if (t > now && (!next || t < next))
          next = t;
    for (const JobRequest& q : index.contents().queued)
      for (int n = 1; n <= 8; ++n)
        if (const WallTime t = q.submitted + hours(6) * n; t > now && (!next || t < next))
          next = t;
    if (!next)
      return {};
    now = next;
    for (; !ends.empty() && ends.begin()->first <= now; ends.erase(ends.begin()))
      index.ended(ends.begin()->second, now);
    for (const Reservation& r : index.contents().reservations)
      if (r.until <= now)
        index.remove_reservation(r.id);
  }
  return {};
}

TEST(ForecastProperty, IsExactIfDurationsAreKnown) {
  int waited = 0, beside_reservations = 0;
  for (std::uint64_t seed = 500; seed < 620; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fleet f(seed);
    for (int i = 0; i < 14; ++i) {
      JobRequest j = f.random_job();
      j.time_limit = minutes(f.rng.between(5, 200));
      if (!feasible(f.index, j))
        continue;
      f.index.enqueue(j);
      if (i == 7)
        f.reservations();
      carry_out(f.index, plan(f.index, f.now), f.now);
      if (HasFatalFailure())
        return;
    }
    f.now = f.now + minutes(f.rng.between(0, 4));
    const auto queued = f.index.contents().queued;
    if (queued.empty())
      continue;
    const JobId id = queued[f.rng.below(queued.size())].id;
    const WallTime said = forecast(f.index, id, f.now);
    beside_reservations += !f.index.contents().reservations.empty();
    ASSERT_EQ(said, starts_at(f.index, id, f.now)) << "job " << id.value;
    waited += said > f.now;
  }
  EXPECT_GT(waited, 40);
  EXPECT_GT(beside_reservations, 30);
}

// Room that a reservation keeps is never taken by what would still be there, and spot work uses it
// until then.
TEST(ReservationProperty, OnlyPreemptibleJobsRunOnItWhenItBegins) {
  int spot_before = 0, cleared = 0;
  for (std::uint64_t seed = 900; seed < 930; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fleet f(seed);
    f.reservations();
    std::set<std::pair<WallTime, JobId>> ends;
    for (int step = 0; step < 60; ++step) {
      for (std::uint64_t n = f.rng.below(3); n > 0 && f.next < 40; --n) {
        JobRequest j = f.random_job();
        if (f.rng.chance(0.5))
          j.time_limit = minutes(f.rng.between(5, 200));
        f.index.enqueue(j);
      }
      const Plan p = plan(f.index, f.now);
      const std::vector<Reservation> reserved = f.index.contents().reservations;
      for (const Start& s : p.starts) {
        const JobRequest j = *f.index.queued(s.job);
        ends.emplace(f.now + (j.time_limit.ns > 0 ? j.time_limit : minutes(f.rng.between(1, 600))),
                     s.job);
        for (const Reservation& r : reserved)
          spot_before += j.spot && r.from > f.now &&
                         std::ranges::any_of(s.placements, [&](const Placement& a) {
                           return std::ranges::any_of(r.placements, [&](const Placement& b) {
                             return a.node == b.node && a.gpus.front().gpu == b.gpus.front().gpu;
                           });
                         });
      }
      for (const Preempt& v : p.preempts) {
        cleared += v.cause == PreemptCause::reservation;
        std::erase_if(ends, [&](const auto& e) { return e.second == v.victim; });
      }
      carry_out(f.index, p, f.now);
      if (HasFatalFailure())
        return;
      const std::vector<RunningJob> running = f.index.contents().running;
      for (const Reservation& r : reserved) {
        if (r.from > f.now || r.until <= f.now)
          continue;
        for (const RunningJob& j : running)
          for (const Placement& a : j.placements)
            for (const Placement& b : r.placements)
              for (const GpuShare& x : a.gpus)
                for (const GpuShare& y : b.gpus)
                  ASSERT_FALSE(a.node == b.node && x.gpu == y.gpu && !j.request.reservation)
                      << "job " << j.request.id.value << " stands in reservation " << r.id.value;
      }
      WallTime next = f.now + minutes(f.rng.between(1, 20));
      if (!ends.empty())
        next = std::min(next, ends.begin()->first);
      for (const Reservation& r : reserved)
        for (const WallTime t : {r.from, r.until})
          if (t > f.now)
            next = std::min(next, t);
      f.now = next;
      for (; !ends.empty() && ends.begin()->first <= f.now; ends.erase(ends.begin()))
        f.index.ended(ends.begin()->second, f.now);
      for (const Reservation& r : reserved)
        if (r.until <= f.now)
          f.index.remove_reservation(r.id);
    }
  }
  EXPECT_GT(spot_before, 8);
  EXPECT_GT(cleared, 4);
}

// Where a reservation has room that nobody must leave, it takes that.
TEST(ReservationProperty, NoJobIsPreemptedIfCapacityIsFree) {
  int beside = 0, asked = 0;
  for (std::uint64_t seed = 1200; seed < 1260; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Fleet f(seed);
    for (int i = 0; i < 10; ++i) {
      JobRequest j = f.random_job();
      j.tasks = 1;
      if (f.rng.chance(0.5)) {
        j.spot = true;
        j.yields = f.rng.chance(0.5) ? Yields::by_suspend : Yields::by_requeue;
      }
      f.index.enqueue(j);
      carry_out(f.index, plan(f.index, f.now), f.now);
    }
    IndexContents firm = f.index.contents();  // the same, were nobody to give way
    for (RunningJob& j : firm.running) {
      j.request.spot = false;
      j.request.yields = Yields::never;
    }
    ReservationRequest r{.project = ProjectId{9},
                         .resources = {.gpus = 1, .share = {500, 0}},
                         .from = f.now,
                         .until = f.now + hours(1)};
    if (f.rng.chance(0.6))
      r.resources = {.gpus = static_cast<std::int32_t>(f.rng.between(1, 4)), .share = {1000, 0}};
    const auto places = place_reservation(f.index, r, f.now);
    const bool free = place_reservation(SchedIndex::rebuild(firm), r, f.now).has_value();
    if (!places) {
      ASSERT_FALSE(free);
      continue;
    }
    Reservation made{.id = ReservationId{1},
                     .project = ProjectId{9},
                     .from = r.from,
                     .until = r.until,
                     .placements = *places};
    f.index.upsert_reservation(made);
    const Plan p = plan(f.index, f.now);
    const auto cleared = std::ranges::count(p.preempts, PreemptCause::reservation, &Preempt::cause);
    if (free) {
      ASSERT_EQ(cleared, 0) << "there was room beside them";
    } else {
      ASSERT_GT(cleared, 0);
    }
    ++(free ? beside : asked);
  }
  EXPECT_GT(beside, 15);
  EXPECT_GT(asked, 5);
}

TEST(Reservation, GangsWithALimitRunBeforeIt) {
  SchedIndex index;
  index.upsert_node(node(1, 8));
  index.upsert_node(node(2, 8));
  reserve(index, 1, 8, t0 + hours(2), t0 + hours(4));
  JobRequest gang = job(1, 8);
  gang.tasks = 2;
  index.enqueue(gang);
  EXPECT_TRUE(plan(index, t0).starts.empty());
  EXPECT_EQ(explain(index, gang.id, t0).would_start_now, "--time 1h55m or --spot would start now");
  gang.time_limit = hours(1);
  index.enqueue(gang);
  EXPECT_TRUE(started_by(plan(index, t0), gang.id));
}

// Two reservations of one node at once: what they keep of its cores adds up.
TEST(Reservation, OverlappingReservationsAddUp) {
  SchedIndex index;
  index.upsert_node(node(1, 8));  // 64 cores
  reserve(index, 1, 4, t0 + hours(1), t0 + hours(2));
  reserve(index, 2, 3, t0 + hours(1), t0 + hours(2));
  JobRequest j = job(1, 1);
  j.resources.cpu_milli = 16000;
  index.enqueue(j);
  EXPECT_TRUE(plan(index, t0).starts.empty())
      << "seven eighths of 56 cores go with the seven GPUs, an eighth of the node's being for work "
         "without any";
  j.resources.cpu_milli = 15000;
  index.enqueue(j);
  EXPECT_TRUE(started_by(plan(index, t0), j.id));
}

}  // namespace
}  // namespace billow::sched
