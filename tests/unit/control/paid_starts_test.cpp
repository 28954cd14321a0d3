// A start that `billow explain` promises is one that the budgets will pay for: the forecast asks
// them the question that is asked when the job is about to start.
#include "core/control/renting/paid_starts.h"

#include <fmt/format.h>

#include "money_world.h"

namespace billow::control::money_tests {
namespace {

JobId limited(World& w, Duration limit) {
  SubmitJob c;
  // Nothing is learned from one about another: each runs until its limit.
  c.spec.argv = {fmt::format("program-{}", w.core.state().next_job)};
  c.spec.resources.gpus = 1;
  c.spec.resources.share = {1000, 0};
  c.spec.time_limit = limit;
  c.user = w.core.state().users.begin()->first;
  const JobId id(w.core.state().next_job);
  w.must(c);
  return id;
}

sched::Outlook ask(World& w, JobId job) {
  const State& state = w.core.state();
  const PaidStarts paid(state, {w.wall, w.billed, &w.core.prices()});
  return sched::outlook(state.index, job, w.wall, &paid);
}

TEST(PaidStarts, AStartThatTheBudgetRefusesIsNotPromised) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  project_budget(w, {3'700'000'000}, BudgetPeriod::total);
  limited(w, hours(1));  // $3.60
  const JobId waits = limited(w, hours(1));
  ASSERT_EQ(w.job(waits)->state, JobState::queued);
  EXPECT_EQ(sched::forecast(w.core.state().index, waits, w.wall), w.wall + hours(1));
  const sched::Outlook seen = ask(w, waits);
  EXPECT_FALSE(seen.start);
  ASSERT_TRUE(seen.refused);
  EXPECT_EQ(seen.refused_at, w.wall + hours(1));
  EXPECT_NE(seen.refused->message.find("leaves $0.10; 10m at $3.60/h needs $0.60"),
            std::string::npos)
      << seen.refused->message;
  EXPECT_EQ(sched::latest_start(w.core.state().index, waits, w.wall,
                                std::make_unique<PaidStarts>(
                                    w.core.state(), Context{w.wall, w.billed, &w.core.prices()})
                                    .get()),
            WallTime{});
  project_budget(w, {5'000'000'000}, BudgetPeriod::total);
  EXPECT_EQ(ask(w, waits).start, w.wall + hours(1));
}

TEST(PaidStarts, ADailyBudgetPaysAgainTheNextDay) {
  World w;  // 01:00 UTC
  w.must(AgentHello{offer("n1", 1), {}});
  project_budget(w, {4'000'000'000}, BudgetPeriod::daily);
  limited(w, hours(1));
  const JobId waits = limited(w, hours(1));
  const sched::Outlook seen = ask(w, waits);
  EXPECT_TRUE(seen.refused);
  EXPECT_EQ(seen.start, w.wall + hours(23)) << "at midnight";
}

TEST(PaidStarts, AJobBehindAnotherIsToldWhatTheOtherLeaves) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  project_budget(w, {8'000'000'000}, BudgetPeriod::total);
  limited(w, hours(1));
  const JobId second = limited(w, hours(1)), third = limited(w, hours(1));
  EXPECT_EQ(ask(w, second).start, w.wall + hours(1));
  EXPECT_EQ(ask(w, third).start, w.wall + hours(2)) << "$0.80 are left, enough for ten minutes";
  project_budget(w, {7'500'000'000}, BudgetPeriod::total);
  EXPECT_EQ(ask(w, second).start, w.wall + hours(1));
  EXPECT_FALSE(ask(w, third).start);
  // It ends early, and its unspent minimum counts no longer.
  w.pass_time(minutes(5));
  w.end(w.job(JobId(1))->tasks.front());
  EXPECT_EQ(w.job(second)->state, JobState::running);
  EXPECT_EQ(ask(w, third).start, w.wall + hours(1));
}

TEST(PaidStarts, MoneyKeptForAReservationPaysForNoOtherJob) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(SetPrice{{.of = "gpu:H100", .cost = Rate{1'000'000}, .charge = Rate{1'000'000}}});
  Reserve r;
  r.project = w.core.state().projects.begin()->second.name;
  r.user = w.core.state().users.begin()->first;
  r.resources.gpus = 1;
  r.resources.share = {1000, 0};
  r.from = w.wall;
  r.until = w.wall + hours(1);
  w.must(r);
  const Rate rate = w.core.state().reservations.begin()->second.rate;
  project_budget(w, amount(rate, hours(1)) + NanoUsd{400'000'000}, BudgetPeriod::total);
  const JobId waits = limited(w, hours(1));
  ASSERT_EQ(w.job(waits)->state, JobState::queued);
  const sched::Outlook seen = ask(w, waits);
  EXPECT_FALSE(seen.start) << "after it, $0.40 are left";
  EXPECT_TRUE(seen.refused);
  EXPECT_EQ(seen.refused_at, w.wall + hours(1));
}

// Random installations are played on as they were foreseen: every job runs as long as it said.
class Played {
 public:
  explicit Played(std::uint64_t seed) : rng_(seed) {
    w_.must(AgentHello{offer("n1", static_cast<int>(rng_.between(1, 3))), {}});
    const BudgetPeriod periods[] = {BudgetPeriod::total, BudgetPeriod::daily,
                                    BudgetPeriod::monthly};
    const NanoUsd budget{rng_.between(1, 40) * 1'000'000'000};
    project_budget(w_, budget, periods[rng_.below(3)]);
    for (int n = 0; n < 6; ++n) {
      jobs_.push_back(limited(w_, minutes(rng_.between(1, 12) * 15)));
      if (rng_.chance(0.5))
        pass(rng_.between(1, 20));
    }
  }

  // How many of the waiting jobs were promised a start, and how many were refused one.
  std::pair<int, int> check() {
    std::map<JobId, sched::Outlook> told;
    for (const JobId job : jobs_)
      if (w_.job(job) && w_.job(job)->state == JobState::queued)
        told[job] = ask(w_, job);
    const WallTime from = w_.wall;
    std::map<JobId, WallTime> started;
    for (int minute = 0; minute < played_minutes && started.size() < told.size(); ++minute) {
      for (const auto& [job, outlook] : told)
        if (w_.job(job) && w_.job(job)->state == JobState::running)
          started.emplace(job, w_.wall);
      pass(1);
    }
    std::pair<int, int> count;
    for (const auto& [job, outlook] : told) {
      const auto at = started.find(job);
      const std::string what = fmt::format("job {} of {}", job.value, (w_.wall - from).seconds());
      if (outlook.start > from + minutes(played_minutes - 2))
        continue;  // the next month
      if (outlook.start) {
        ++count.first;
        EXPECT_LE(at == started.end() ? WallTime{INT64_MAX} : at->second,
                  outlook.start + minutes(2))
            << what;
      } else if (outlook.refused) {
        ++count.second;
        EXPECT_TRUE(at == started.end()) << what << " started";
      }
    }
    return count;
  }

 private:
  static constexpr int played_minutes = 26 * 60;  // beyond the next midnight

  void pass(std::int64_t count) {
    for (std::int64_t n = 0; n < count; ++n) {
      w_.pass_time(minutes(1));
      std::vector<TaskId> over;
      for (const auto& [id, task] : w_.core.state().tasks)
        if (task.state != TaskState::ended &&
            w_.billed - task.lease_from >= w_.job(task.job)->spec->time_limit)
          over.push_back(id);
      for (const TaskId id : over)
        w_.end(id);
      w_.must(MoneyTick{});
    }
  }

  World w_;
  Rng rng_;
  std::vector<JobId> jobs_;
};

TEST(PaidStartsProperty, WhatIsPromisedIsPaidAndWhatIsRefusedDoesNotStart) {
  std::pair<int, int> all;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto [promised, refused] = Played(seed).check();
    all.first += promised;
    all.second += refused;
    if (HasFailure())
      return;
  }
  EXPECT_GT(all.first, 8);
  EXPECT_GT(all.second, 2);
}

}  // namespace
}  // namespace billow::control::money_tests
