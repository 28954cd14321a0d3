// Agent tokens: what their jobs cost and may still cost never exceeds the budget, whatever they
// submit; what is dangerous waits for a person.
#include "core/control/agent_tokens.h"
#include "core/control/decide/permissions.h"

#include "tests/unit/control/money_world.h"

namespace billow::control::money_tests {
namespace {

constexpr NanoUsd usd(std::int64_t cents) {
  return {cents * 10'000'000};
}

struct AgentWorld : World {
  TokenId token;
  std::int64_t number = 0;

  explicit AgentWorld(AgentLimits limits = {usd(2000), usd(500), 2000, false}, int gpus = 8) {
    must(AgentHello{offer("n1", gpus), {}});
    token = create(limits);
  }
  TokenId create(const AgentLimits& limits, Duration life = hours(8)) {
    const TokenId id(core.state().next_token);
    must(CreateToken{.name = fmt::format("tuner{}", id.value),
                     .hash = fmt::format("agent{}", id.value),
                     .user = "ana",
                     .scope = TokenScope::agent,
                     .project = "default",
                     .life = life,
                     .agent = limits});
    return id;
  }
  SubmitJob job_of(TokenId agent, int gpus, Duration time) {
    SubmitJob c;
    c.spec.argv = {"train"};
    c.spec.resources.gpus = gpus;
    c.spec.resources.share = {1000, 0};
    c.spec.time_limit = time;
    c.user = core.state().users.begin()->first;
    c.agent = agent;
    c.digest = fmt::format("request {}", ++number);
    return c;
  }
  Result<JobId> ask(SubmitJob c) {
    const JobId id(core.state().next_job);
    BILLOW_TRY_VOID(run(c));
    if (core.state().next_job == id.value)
      return fail(Code::forbidden, "a person was asked");
    return id;
  }
  ledger::BudgetUse use(TokenId of) {
    return budget_uses(core.state(), billed).at(token_budget(of));
  }
  NanoUsd charged(TokenId of) {  // by the rows of the ledger
    NanoUsd sum;
    std::set<JobId> mine;
    for (const Event& e : history)
      if (const auto* s = get_if<JobsSubmitted>(&e.body); s && s->agent == of)
        for (std::uint64_t i = 0; i < s->count; ++i)
          mine.insert(JobId(s->first.value + i));
    for (const ClosedLease& lease : leases)
      if (mine.contains(lease.task.job))
        sum += lease.charge;
    return sum;
  }
};

TEST(AgentTokens, ATokenWithLimitsHasABudgetAndCannotSignInOrMakeOthers) {
  AgentWorld w;
  EXPECT_EQ(w.core.state().money.budgets.at(token_budget(w.token)).budget.limit, usd(2000));
  const auto who = principal_of(w.core.state(), w.token, w.wall);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->role, roles::member) << "ana is an admin, her agent is not";
  EXPECT_EQ(permissions_in(w.core.state(), *who, ProjectId(1)),
            allowed_in_project(w.core.state(), roles::member));
  w.must(AddProject{"other"});
  EXPECT_FALSE(sees(w.core.state(), *who, ProjectId(2)));
  const CreateToken session{.name = "s",
                            .hash = session_hash(w.token, "x"),
                            .user = "ana",
                            .scope = TokenScope::agent,
                            .life = hours(1)};
  EXPECT_FALSE(w.run(session));
  CreateToken forever{.name = "t", .hash = "q", .user = "ana", .scope = TokenScope::agent};
  forever.agent = {usd(100), usd(100), 1000, false};
  EXPECT_FALSE(w.run(forever)) << "an agent token must expire";
  forever.life = hours(1);
  forever.agent.per_job = usd(101);
  EXPECT_FALSE(w.run(forever));
  w.check_replay();
}

TEST(AgentTokens, AJobWithoutATimeLimitGetsTheTimeThatItsLimitBuys) {
  AgentWorld w;
  const auto id = w.ask(w.job_of(w.token, 1, {}));
  ASSERT_TRUE(id) << id.error().message;
  // $5.00 at $3.60/h is 5000 s, of which the stop takes 15 s.
  EXPECT_EQ(w.job(*id)->spec->time_limit, seconds(4985));
  EXPECT_EQ(w.use(w.token).reserved, usd(500));
  w.check_replay();
}

TEST(AgentTokens, TheSumOfWhatJobsMayCostNeverExceedsTheBudget) {
  AgentWorld w({usd(1000), usd(500), 8000, false});
  int accepted = 0;
  for (int i = 0; i < 50; ++i)  // each may cost $3.60 and the time to stop it
    accepted += w.ask(w.job_of(w.token, 1, hours(1))).has_value();
  EXPECT_EQ(accepted, 2);
  EXPECT_LE(w.use(w.token).spent + w.use(w.token).reserved, usd(1000));
  SubmitJob array = w.job_of(w.token, 1, minutes(10));
  array.spec.array = ArraySpec{.first = 0, .last = 9};
  EXPECT_FALSE(w.ask(array)) << "ten times $0.60 is more than the $2.77 that are left";
  array.spec.array = ArraySpec{.first = 0, .last = 3};
  EXPECT_TRUE(w.ask(array));
  EXPECT_LE(w.use(w.token).spent + w.use(w.token).reserved, usd(1000));
  w.check_replay();
}

TEST(AgentTokens, WhatAJobDidNotUseComesBack) {
  AgentWorld w;
  const auto id = w.ask(w.job_of(w.token, 1, hours(1)));
  ASSERT_TRUE(id);
  w.pass_time(seconds(100));
  w.end(w.job(*id)->tasks.front());
  EXPECT_EQ(w.use(w.token).spent, NanoUsd{100'000'000}) << "100 s at $0.001";
  EXPECT_EQ(w.use(w.token).reserved, NanoUsd{});
  EXPECT_TRUE(w.core.state().agent_jobs.empty());
  w.check_replay();
}

TEST(AgentTokens, ARunningJobIsStoppedSoThatItEndsWithinItsLimit) {
  AgentWorld w({usd(100), usd(100), 2000, false});  // $1.00 is 500 s of two GPUs
  const auto id = w.ask(w.job_of(w.token, 2, {}));
  ASSERT_TRUE(id);
  ASSERT_EQ(w.job(*id)->state, JobState::running) << w.job(*id)->reason;
  const Duration paid = get<wire::agent_v1::Start>(w.effects.back().message).paid_for;
  EXPECT_LE(paid + w.job(*id)->spec->stop_grace, seconds(500)) << "also without the head";
  int waited = 0;
  while (w.job(*id)->stopping == StopCause::none && waited < 1000) {
    w.pass_time(limits::money_tick);
    w.must(MoneyTick{});
    waited += 2;
  }
  EXPECT_GE(waited, 480);
  EXPECT_NE(w.job(*id)->reason.find("limit of $1.00"), std::string::npos) << w.job(*id)->reason;
  w.pass_time(w.job(*id)->spec->stop_grace);  // all of its grace
  w.end(w.job(*id)->tasks.front(), 143);
  EXPECT_LE(w.charged(w.token), usd(100));
  EXPECT_GE(w.charged(w.token), usd(98));
  EXPECT_EQ(w.use(w.token).spent, w.charged(w.token));
  EXPECT_FALSE(w.ask(w.job_of(w.token, 1, minutes(5)))) << "nothing is left";
  w.check_replay();
}

TEST(AgentTokens, AJobThatItsNodeStopsForMoneyEnds) {
  AgentWorld w({usd(100), usd(100), 2000, false});
  SubmitJob c = w.job_of(w.token, 1, {});
  c.spec.rerun_if_lost = true;
  const auto id = w.ask(c);
  ASSERT_TRUE(id);
  w.pass_time(seconds(990));
  TaskStatus status{.task = w.job(*id)->tasks.front(),
                    .state = TaskState::ended,
                    .started_at = w.wall,
                    .ended_at = w.wall};
  status.exit.kind = ExitKind::unpaid;
  w.must(AgentReport{NodeId(1), status});
  EXPECT_EQ(w.job(*id), nullptr) << "it does not start again";
  EXPECT_EQ(w.finished.back().job.state, JobState::stopped);
}

TEST(AgentTokens, GpusAtOnceAreLimitedAndFreedOnesAreUsed) {
  AgentWorld w({usd(100'00), usd(100'00), 2000, false});
  EXPECT_FALSE(w.ask(w.job_of(w.token, 3, minutes(5))));
  SubmitJob gang = w.job_of(w.token, 2, minutes(5));
  gang.spec.nodes = 2;
  EXPECT_FALSE(w.ask(gang)) << "four GPUs in all";
  const auto a = w.ask(w.job_of(w.token, 2, minutes(5)));
  const auto b = w.ask(w.job_of(w.token, 1, minutes(5)));
  ASSERT_TRUE(a && b);
  ASSERT_EQ(w.job(*a)->state, JobState::running) << w.job(*a)->reason;
  EXPECT_EQ(w.job(*b)->state, JobState::held);
  EXPECT_NE(w.job(*b)->reason.find("at most 2 GPUs"), std::string::npos) << w.job(*b)->reason;
  w.end(w.job(*a)->tasks.front());
  w.must(MoneyTick{});
  EXPECT_EQ(w.job(*b)->state, JobState::running);
  w.check_replay();
}

TEST(AgentTokens, BeyondTheLimitOfOneJobAPersonIsAskedOnce) {
  AgentWorld w;
  const SubmitJob dear = w.job_of(w.token, 2, hours(1));  // $7.20
  EXPECT_FALSE(w.ask(dear));
  EXPECT_FALSE(w.ask(dear)) << "still pending";
  ASSERT_EQ(w.core.state().approvals.size(), 1u);
  const Approval& asked = w.core.state().approvals.begin()->second;
  EXPECT_EQ(asked.action, ApprovalAction::spend);
  EXPECT_EQ(asked.state, ApprovalState::pending);
  w.must(DecideApproval{asked.id, ApprovalState::approved, "ana"});
  SubmitJob other = dear;
  other.digest = "another request";
  EXPECT_FALSE(w.ask(other)) << "the approval is for one request";
  EXPECT_TRUE(w.ask(dear));
  EXPECT_EQ(w.core.state().approvals.at(1).state, ApprovalState::used);
  EXPECT_FALSE(w.ask(dear)) << "and for one time";
  EXPECT_FALSE(w.run(DecideApproval{1, ApprovalState::approved, "ana"})) << "used up";
  w.pass_time(limits::approval_life);
  w.must(Tick{});
  for (const auto& [id, approval] : w.core.state().approvals)
    EXPECT_FALSE(approval.open());
  w.check_replay();
}

TEST(AgentTokens, AnApprovalDoesNotRaiseTheBudget) {
  AgentWorld w;
  EXPECT_EQ(w.ask(w.job_of(w.token, 2, hours(10))).error().code, Code::exhausted) << "$72 of $20";
  EXPECT_TRUE(w.core.state().approvals.empty());
  EXPECT_FALSE(
      w.run(SetBudget{{BudgetScope::token, w.token.value, BudgetPeriod::total, usd(9000)}, {}}));
  const auto id = w.ask(w.job_of(w.token, 1, hours(1)));
  ASSERT_TRUE(id);
  EXPECT_FALSE(w.run(SetBudget{{BudgetScope::job, id->value, BudgetPeriod::total, usd(9000)}, {}}));
  EXPECT_FALSE(w.run(RemoveBudget{{BudgetScope::job, id->value, BudgetPeriod::total}}));
  EXPECT_FALSE(w.run(RemoveBudget{token_budget(w.token)}));
}

TEST(AgentTokens, ExpiryAndRevocationEndItsJobs) {
  AgentWorld w;
  const auto a = w.ask(w.job_of(w.token, 1, hours(1)));
  const TokenId keeps = w.create({usd(1000), usd(1000), 2000, true}, minutes(30));
  const auto b = w.ask(w.job_of(keeps, 1, hours(1)));
  ASSERT_TRUE(a && b);
  w.pass_time(minutes(31));
  w.must(Tick{});
  EXPECT_EQ(w.job(*b)->stopping, StopCause::none) << "its policy keeps them";
  EXPECT_FALSE(w.ask(w.job_of(keeps, 1, minutes(5)))) << "but it submits nothing more";
  w.must(RevokeToken{w.token});
  w.must(Tick{});
  EXPECT_EQ(w.job(*a)->stopping, StopCause::request);
  EXPECT_FALSE(w.core.state().money.budgets.contains(token_budget(w.token)));
  w.check_replay();
}

TEST(AgentTokens, SchedulesOfAnAgentPayFromItsBudgetTogether) {
  AgentWorld w({usd(100), usd(70), 2000, false});
  for (const char* name : {"one", "two"}) {
    AddSchedule c{name, "* * * * *", w.job_of(w.token, 1, minutes(10))};  // $0.615 each
    w.must(c);
  }
  w.pass_time(minutes(1));
  w.must(Tick{});
  const auto made = w.all<JobsSubmitted>();
  EXPECT_EQ(made.size(), 1u) << "both fire at the same time, and one is paid for";
  EXPECT_LE(w.use(w.token).spent + w.use(w.token).reserved, usd(100));
  w.check_replay();
}

TEST(AgentTokens, ReplicasOfAnAgentsEndpointPayFromItsBudget) {
  AgentWorld w({usd(100), usd(60), 2000, false});
  DeployEndpoint deploy;
  deploy.name = "chat";
  deploy.spec = w.job_of(w.token, 1, {}).spec;
  deploy.user = w.core.state().users.begin()->first;
  deploy.policy.max = 5;
  deploy.agent = w.token;
  w.must(deploy);
  w.must(StartReplica{"chat", 1, 9000, false});
  w.must(StartReplica{"chat", 1, 9001, false});
  EXPECT_FALSE(w.run(StartReplica{"chat", 1, 9002, false})) << "$0.60 and $0.40 are committed";
  EXPECT_EQ(w.use(w.token).reserved, usd(100));
  w.check_replay();
}

// Random submissions, crashes and ends: the ledger never holds more than the budget.
TEST(AgentTokens, TheLedgerNeverExceedsTheBudget) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    AgentWorld w({usd(500), usd(200), 4000, false});
    std::map<TaskId, WallTime> ends_by;
    for (int step = 0; step < 120; ++step) {
      const auto dice = rng.below(10);
      if (dice < 3) {
        SubmitJob c = w.job_of(w.token, 1 + static_cast<int>(rng.below(2)),
                               seconds(static_cast<std::int64_t>(60 + rng.below(1200))));
        if (rng.below(3) == 0)
          c.spec.time_limit = {};
        if (rng.below(4) == 0)
          c.spec.array = ArraySpec{.first = 0, .last = rng.below(4)};
        c.spec.retries = static_cast<std::uint32_t>(rng.below(3));
        (void)w.ask(c);
      } else if (dice == 3 && !w.core.state().tasks.empty()) {
        const auto& [id, task] = *w.core.state().tasks.begin();
        if (task.state != TaskState::ended)
          w.end(id, static_cast<int>(rng.below(2)));
      } else if (dice == 4) {
        w.crash();
      } else if (dice == 5) {
        w.must(Tick{});
      } else {
        for (std::uint64_t i = rng.below(40); i > 0; --i) {
          w.pass_time(limits::money_tick);
          w.must(MoneyTick{});
          // A stopped task takes all of its grace.
          std::vector<TaskId> over;
          for (const auto& [id, task] : w.core.state().tasks) {
            if (task.state == TaskState::ended ||
                w.core.state().jobs.at(task.job).stopping == StopCause::none)
              continue;
            const auto by = ends_by.try_emplace(id, w.wall + seconds(10)).first->second;
            if (by <= w.wall)
              over.push_back(id);
          }
          for (const TaskId id : over)
            w.end(id, 143);
        }
      }
      const auto use = w.use(w.token);
      ASSERT_LE(use.spent + use.reserved, usd(500)) << "step " << step;
    }
    EXPECT_LE(w.charged(w.token), usd(500));
    EXPECT_EQ(w.use(w.token).spent >= w.charged(w.token), true);
  }
}

}  // namespace
}  // namespace billow::control::money_tests
