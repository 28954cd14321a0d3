// In which order a project's jobs come, and that nobody waits for ever.
#include <algorithm>

#include "base/rng.h"
#include "core/sched/lines.h"
#include "support.h"

namespace billow::sched {
using namespace test;
namespace {

// Two users of one project, the first with everything queued before the second; who got how many of
// the first `starts` starts.
std::pair<int, int> first_starts(OrderPolicy policy, int starts) {
  SchedIndex index;
  index.upsert_node(node(1, 4));
  index.upsert_project({.id = ProjectId{1}, .policy = policy});
  for (std::uint64_t i = 1; i <= 200; ++i) {
    JobRequest j = job(i);
    j.user = UserId{i <= 100 ? 1u : 2u};
    index.enqueue(j);
  }
  std::pair<int, int> got;
  std::vector<JobId> running;
  for (WallTime now = t0; got.first + got.second < starts; now = now + minutes(10)) {
    for (JobId id : running)
      index.ended(id, now);
    running.clear();
    const Plan p = plan(index, now);
    for (const Start& s : p.starts) {
      ++(index.queued(s.job)->user == UserId{1} ? got.first : got.second);
      running.push_back(s.job);
    }
    carry_out(index, p, now);
    if (::testing::Test::HasFatalFailure() || running.empty())
      break;
  }
  return got;
}

TEST(OrderPolicy, FairSharesBetweenTheUsersOfAProjectAndFifoDoesNot) {
  EXPECT_EQ(first_starts(OrderPolicy::fair, 80), std::pair(40, 40));
  EXPECT_EQ(first_starts(OrderPolicy::fifo, 80), std::pair(80, 0));
}

TEST(OrderPolicy, PastUsageCountsEvenWithoutRunningJobs) {
  SchedIndex index;
  index.upsert_node(node(1, 1));
  index.enqueue(job(1));
  carry_out(index, plan(index, t0), t0);
  index.ended(JobId{1}, t0 + hours(2));
  index.enqueue(job(2));
  JobRequest other = job(3);
  other.user = UserId{2};
  index.enqueue(other);
  const Plan p = plan(index, t0 + hours(3));
  ASSERT_EQ(p.starts.size(), 1u);
  EXPECT_EQ(p.starts[0].job, JobId{3});
  EXPECT_EQ(p, plan(SchedIndex::rebuild(index.contents()),
                    t0 + hours(3)));  // what users have had is part of the contents
}

TEST(OrderPolicy, FifoBlocksJobsBehindOneWithoutCapacity) {
  for (const OrderPolicy policy : {OrderPolicy::fifo, OrderPolicy::fair}) {
    SchedIndex index;
    index.upsert_node(node(1, 4));
    index.upsert_project({.id = ProjectId{1}, .policy = policy});
    index.enqueue(job(1, 2));
    carry_out(index, plan(index, t0), t0);
    index.enqueue(job(2, 4));
    index.enqueue(job(3, 1));
    JobRequest elsewhere = job(4, 1);
    elsewhere.project = ProjectId{2};
    index.enqueue(elsewhere);
    const Plan p = plan(index, t0 + seconds(1));
    std::set<JobId> started;
    for (const Start& s : p.starts)
      started.insert(s.job);
    if (policy == OrderPolicy::fair) {
      EXPECT_EQ(started, (std::set<JobId>{JobId{3}, JobId{4}}));
      continue;
    }
    EXPECT_EQ(started, std::set<JobId>{JobId{4}}) << "another project is not held up by it";
    const Explanation why = explain(index, JobId{3}, t0 + seconds(1));
    EXPECT_EQ(why.reasons.at(0).kind, ReasonKind::waiting_behind);
    EXPECT_EQ(why.reasons.at(0).behind, JobId{2});
    carry_out(index, p, t0 + seconds(1));
    index.ended(JobId{1}, t0 + seconds(2));
    index.ended(JobId{4}, t0 + seconds(2));
    const Plan q = plan(index, t0 + seconds(2));
    ASSERT_EQ(q.starts.size(), 1u);
    EXPECT_EQ(q.starts[0].job, JobId{2});
  }
}

TEST(OrderPolicy, FifoSkipsJobsAtTheirUsersLimit) {
  SchedIndex index;
  index.upsert_node(node(1, 4));
  index.upsert_project({.id = ProjectId{1}, .user_running_max = 1, .policy = OrderPolicy::fifo});
  index.enqueue(job(1));
  index.enqueue(job(2));
  JobRequest other = job(3);
  other.user = UserId{2};
  index.enqueue(other);
  const Plan p = plan(index, t0);
  ASSERT_EQ(p.starts.size(), 2u);
  EXPECT_EQ(p.starts[1].job, JobId{3});
}

TEST(Starvation, StarvedJobsStartByAgeRegardlessOfUsage) {
  SchedIndex index;
  index.upsert_node(node(1, 1));
  index.set_usage({.project = ProjectId{1},
                   .milli_seconds = 1e12,
                   .as_of = t0});  // it has had far more than its share
  JobRequest old = job(1);
  JobRequest young = job(2);
  young.project = ProjectId{2};
  young.submitted = t0 + seconds(1);
  index.enqueue(old);
  index.enqueue(young);
  EXPECT_EQ(plan(index, t0 + hours(1)).starts.at(0).job, JobId{2});
  EXPECT_EQ(plan(index, t0 + hours(30)).starts.at(0).job, JobId{1});
}

// The bound: a job of the common priority starts within `starve_after` and the longest run of the
// others, however wide it is, whatever streams past it, and though nobody knows how long anything
// runs.
TEST(Starvation, NoGangWaitsLongerThanTheLimitAndOneRunOfTheOthers) {
  int drained = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    SchedSettings settings;
    settings.starve_after = hours(2);
    SchedIndex index(settings);
    const std::uint64_t nodes = 2 + rng.below(5);
    for (std::uint64_t i = 1; i <= nodes; ++i) {
      NodeShape n = node(i, static_cast<int>(rng.between(2, 8)));
      n.place.switch_name = rng.chance(0.5) ? "a" : "b";
      index.upsert_node(n);
    }
    const Duration longest = minutes(60);
    std::uint64_t next = 0;
    std::set<std::pair<WallTime, JobId>> ends;
    JobRequest gang = job(1'000'000);
    gang.submitted = t0;
    gang.project = ProjectId{1 + rng.below(3)};
    do {
      gang.tasks = static_cast<std::int32_t>(rng.between(1, static_cast<std::int64_t>(nodes)));
      gang.resources.gpus = static_cast<std::int32_t>(rng.between(1, 8));
      gang.constraints.close_required = rng.chance(0.3);
      gang.constraints.close = Closeness::switch_;
      gang.resources.whole_node = gang.resources.gpus == 8 && rng.chance(0.5);
      if (gang.resources.whole_node)
        gang.resources.gpus = 0;
    } while (!feasible(index, gang));
    WallTime now = t0;
    bool started = false, asked = false;
    while (!started) {
      for (; index.queued_count() < 40;) {
        JobRequest j = job(++next, rng.chance(0.2) ? 2 : 1, rng.chance(0.3) ? 500 : 1000);
        j.resources.gpus = j.resources.share.milli < 1000 ? 1 : j.resources.gpus;
        j.project = ProjectId{1 + rng.below(3)};
        j.submitted = now + seconds(1);
        index.enqueue(j);
      }
      const Plan p = plan(index, now);
      for (const Start& s : p.starts) {
        started = started || s.job == gang.id;
        ends.emplace(now + minutes(rng.between(1, 60)), s.job);
      }
      for (const Reserve& r : p.reserves)
        drained += r.job == gang.id && !r.expected_start;
      if (started)
        break;
      ASSERT_LT(now, t0 + settings.starve_after + longest)
          << "a gang of " << gang.tasks << " × " << gang.resources.gpus << " starved";
      carry_out(index, p, now);
      if (HasFatalFailure())
        return;
      if (!std::exchange(asked, true)) {  // everything is full when it comes
        index.enqueue(gang);
        continue;
      }
      const WallTime starved = t0 + settings.starve_after;
      now = now < starved && ends.begin()->first > starved ? starved : ends.begin()->first;
      while (!ends.empty() && ends.begin()->first <= now) {
        index.ended(ends.begin()->second, now);
        ends.erase(ends.begin());
      }
    }
    EXPECT_LE(now, t0 + settings.starve_after + longest);
  }
  EXPECT_GT(drained, 40) << "the streams leave too much room to show anything";
}

TEST(Starvation, PriorityCountsLessTheLongerTheOtherHasWaited) {
  const Duration day = hours(24);
  const auto level = [&](int priority, Duration waited) {
    return queue_level(priority, waited, day);
  };
  for (int p = -1000; p < 1000; ++p)
    ASSERT_LT(level(p, {}), level(p + 1, {}))
        << "among those that have not waited long, priority alone counts";
  EXPECT_EQ(level(0, day), level(0, {}));
  EXPECT_EQ(level(0, day * 2), level(1, {}));
  EXPECT_EQ(level(0, day * 3), level(3, {}));
  EXPECT_EQ(level(0, day * 11), level(1023, {}));
  // Who comes so much later that the difference is made up never passes, however long both wait.
  for (int days = 4; days < 30; ++days)
    EXPECT_GE(level(0, day * days), level(3, day * (days - 3)));
}

// A gang of low priority, and a stream of jobs that pass it.
class Stream {
 public:
  static constexpr Duration longest = minutes(60), starve_after = hours(2);

  explicit Stream(std::uint64_t seed) : rng_(seed), index_(settings()) {
    const std::uint64_t nodes = 2 + rng_.below(3);
    for (std::uint64_t i = 1; i <= nodes; ++i)
      index_.upsert_node(node(i, static_cast<int>(rng_.between(2, 6))));
    gang_ = job(1'000'000);
    gang_.order = 0;  // it was there first
    gang_.priority = -static_cast<std::int32_t>(rng_.below(2));
    highest_ = gang_.priority + static_cast<std::int32_t>(rng_.between(1, 3));
    do {
      gang_.tasks = static_cast<std::int32_t>(rng_.between(1, static_cast<std::int64_t>(nodes)));
      gang_.resources.gpus = static_cast<std::int32_t>(rng_.between(2, 6));
    } while (!feasible(index_, gang_));
    const double gap =
        queue_level(highest_, {}, starve_after) - queue_level(gang_.priority, {}, starve_after);
    settled_ =
        t0 + Duration{static_cast<std::int64_t>((gap + 1) * static_cast<double>(starve_after.ns))} +
        milliseconds(1);  // past what rounding leaves open
  }

  // Until the gang starts; when that was.
  WallTime run() {
    bool asked = false;
    for (;;) {
      fill();
      const Plan p = plan(index_, now_);
      if (take(p))
        return now_;
      check_bound();
      carry_out(index_, p, now_);
      if (testing::Test::HasFatalFailure())
        return now_;
      if (!std::exchange(asked, true)) {
        gang_.submitted = t0;
        index_.enqueue(gang_);
        continue;
      }
      now_ = now_ < settled_ ? std::min(ends_.begin()->first, settled_) : ends_.begin()->first;
      for (; !ends_.empty() && ends_.begin()->first <= now_; ends_.erase(ends_.begin()))
        index_.ended(ends_.begin()->second, now_);
    }
  }

 private:
  static SchedSettings settings() {
    SchedSettings settings;
    settings.starve_after = starve_after;
    return settings;
  }

  void fill() {
    while (index_.queued_count() < 24) {
      JobRequest j = job(++next_, rng_.chance(0.2) ? 2 : 1);
      j.project = ProjectId{1 + rng_.below(3)};
      j.priority =
          gang_.priority + static_cast<std::int32_t>(rng_.between(0, highest_ - gang_.priority));
      j.submitted = now_ + seconds(1);
      index_.enqueue(j);
      if (j.submitted < settled_)
        before_it_.insert(j.id);
    }
  }

  // Whether the plan starts the gang.
  bool take(const Plan& p) {
    bool started = false;
    for (const Start& s : p.starts) {
      started = started || s.job == gang_.id;
      if (before_it_.erase(s.job) > 0)
        last_of_them_ = now_;
      ends_.emplace(now_ + minutes(rng_.between(1, 60)), s.job);
    }
    return started;
  }

  void check_bound() const {
    ASSERT_LE(now_, std::max(settled_, before_it_.empty() ? last_of_them_ : now_) + longest)
        << "a gang of " << gang_.tasks << " × " << gang_.resources.gpus << " starved";
    ASSERT_LT(now_, t0 + hours(72)) << "those before it never end";
  }

  Rng rng_;
  SchedIndex index_;
  JobRequest gang_;
  std::int32_t highest_ = 0;
  WallTime settled_;           // from here on nobody new passes the gang
  std::set<JobId> before_it_;  // submitted before that, and not started yet
  std::set<std::pair<WallTime, JobId>> ends_;
  WallTime now_ = t0, last_of_them_ = t0;
  std::uint64_t next_ = 0;
};

// The bound with mixed priorities. From (scale(q) − scale(p) + 1) × starve_after after it was
// submitted nobody who comes passes a job of priority p, if q is the highest there is; when the
// last of those that are before it then has started, it starts within the longest run of the
// others. However wide it is, whatever streams past it, and though nobody knows how long anything
// runs.
TEST(Starvation, ALowPriorityGangStartsEventually) {
  int streams_that_would_starve_it = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const WallTime started = Stream(seed).run();
    if (HasFatalFailure())
      return;
    streams_that_would_starve_it += started >= t0 + Stream::starve_after * 2;
  }
  EXPECT_GT(streams_that_would_starve_it, 3) << "the streams leave too much room to show anything";
}

}  // namespace
}  // namespace billow::sched
