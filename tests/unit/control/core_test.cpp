// The core on its own: commands in, events out, and replay equal to having lived through it.
#include "world.h"

#include "core/control/decide/cron.h"

namespace billow::control {
namespace {

TEST(Core, RunsAJobAndBillsItsLease) {
  World w;
  w.must(AgentHello{offer("n1", 2), {}});
  w.must(w.job(1));
  ASSERT_EQ(w.effects.size(), 1u);
  EXPECT_EQ(get<Start>(w.effects[0].message).argv, std::vector<std::string>{"true"});
  const TaskId task = w.task_of(JobId(1));
  w.report(task, TaskState::running);
  w.now = w.now + seconds(10);
  w.report(task, TaskState::ended);
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::succeeded);
  EXPECT_EQ(w.finished[0].job.cost.value, 10'000'000);
  EXPECT_TRUE(w.core.state().jobs.empty());
  EXPECT_TRUE(holds_alternative<Settle>(w.effects.back().message));
  w.check_replay();
}

TEST(Core, RefusesWhatCanNeverRunAndSaysWhy) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  const Status nine = w.run(w.job(9));
  ASSERT_FALSE(nine);
  EXPECT_EQ(nine.error().code, Code::infeasible);
  EXPECT_NE(nine.error().message.find("largest"), std::string::npos) << nine.error().message;
  auto typed = w.job(1);
  typed.spec.resources.gpu_types = {"H10"};
  EXPECT_FALSE(w.run(typed));
  auto empty = w.job(1);
  empty.spec.argv.clear();
  EXPECT_EQ(w.run(empty).error().code, Code::invalid);
  EXPECT_TRUE(w.core.state().jobs.empty());
}

TEST(Core, JobsThatAskForNothingDoNotAllStartAtOnce) {
  World w;
  w.must(AgentHello{offer("n1", 0), {}});  // 16 cores
  auto job = w.job(0);
  job.spec.array = ArraySpec{0, 1999, 1, 0};
  w.must(job);
  EXPECT_EQ(w.core.state().count.at(JobState::running), 640u);
  EXPECT_EQ(w.core.state().count.at(JobState::queued), 1360u);
}

TEST(Core, MemoryAloneIsAShare) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  auto job = w.job(1);
  job.spec.resources.share = {0, 20480};
  w.must(job);
  EXPECT_EQ(w.core.state().find_job(JobId(1))->state, JobState::running);
  EXPECT_GT(w.core.state().find_task(w.task_of(JobId(1)))->gpus.front().share.milli, 0);
  // Asking for hardly any compute beside most of the memory makes a card no cheaper.
  World other;
  other.must(AgentHello{offer("n1", 2), {}});
  auto greedy = other.job(1);
  greedy.spec.resources.share = {1, 80'000};
  other.must(greedy);
  EXPECT_GT(other.core.state().find_task(other.task_of(JobId(1)))->gpus.front().share.milli, 950);
  auto nothing = w.job(1);
  nothing.spec.resources.share = {0, 0};
  EXPECT_FALSE(w.run(nothing));
}

TEST(Core, RetriesWithBackOffThenFails) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  auto job = w.job(1);
  job.spec.retries = 1;
  w.must(job);
  w.report(w.task_of(JobId(1)), TaskState::ended, {.kind = ExitKind::exited, .code = 3});
  EXPECT_EQ(w.core.state().find_job(JobId(1))->state, JobState::held);
  w.must(Tick{});
  EXPECT_EQ(w.core.state().find_job(JobId(1))->state, JobState::held);
  w.now = w.now + seconds(1);
  w.must(Tick{});
  EXPECT_EQ(w.core.state().find_job(JobId(1))->state, JobState::running);
  w.report(w.task_of(JobId(1)), TaskState::ended, {.kind = ExitKind::exited, .code = 4});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::failed);
  EXPECT_EQ(w.finished[0].job.exit.code, 4);
  EXPECT_EQ(w.finished[0].job.attempt, 2u);
  w.check_replay();
}

TEST(Core, DependenciesStartOrStopTheirDependents) {
  World w;
  w.must(AgentHello{offer("n1", 4), {}});
  w.must(w.job(1));
  auto ok = w.job(1), failed = w.job(1);
  ok.spec.after = {{JobId(1), AfterKind::ok}};
  failed.spec.after = {{JobId(1), AfterKind::failed}};
  w.must(ok);
  w.must(failed);
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::held);
  w.report(w.task_of(JobId(1)), TaskState::ended);
  EXPECT_EQ(w.core.state().find_job(JobId(2))->state, JobState::running);
  ASSERT_EQ(w.finished.size(), 2u);
  EXPECT_EQ(w.finished[1].job.state, JobState::stopped);
  EXPECT_EQ(w.finished[1].job.reason, "job 1 ended succeeded");
  auto unknown = w.job(1);
  unknown.spec.after = {{JobId(77), AfterKind::ok}};
  EXPECT_EQ(w.run(unknown).error().code, Code::not_found);
  auto late = w.job(1);
  late.spec.after = {{JobId(1), AfterKind::ok}};
  late.finished[JobId(1)] = JobState::succeeded;
  w.must(late);
  w.check_replay();
}

TEST(Core, ArraysShareADescriptionAndEndTogether) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  auto job = w.job(1);
  job.env["A"] = "b";
  job.spec.array = ArraySpec{0, 4, 1, 2};
  w.must(job);
  EXPECT_EQ(w.core.state().count.at(JobState::running), 2u);
  auto after = w.job(1);
  after.spec.after = {{JobId(1), AfterKind::ok}};
  w.must(after);
  for (int round = 0; round < 5; ++round) {
    for (const auto& [id, j] : w.core.state().jobs) {
      if (j.array == JobId(1) && j.state == JobState::running) {
        w.report(j.tasks.front(), TaskState::ended);
        break;
      }
    }
    w.check_replay();
  }
  EXPECT_TRUE(w.core.state().arrays.empty());
  EXPECT_EQ(w.core.state().find_job(JobId(7))->state, JobState::running);
  EXPECT_TRUE(w.core.state().environments.empty());
}

TEST(Core, StoppingAnArrayEndsWaitingElementsBeforeRunningOnes) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  auto job = w.job(1);
  job.spec.array = ArraySpec{0, 9, 1, 0};
  w.must(job);
  w.must(StopJob{JobId(1), "enough"});
  EXPECT_EQ(w.finished.size(), 9u);
  EXPECT_EQ(w.core.state().jobs.size(), 1u);
  EXPECT_TRUE(holds_alternative<Stop>(w.effects.back().message));
  w.report(w.core.state().jobs.begin()->second.tasks.front(), TaskState::ended,
           {.kind = ExitKind::stopped, .signal = 15});
  EXPECT_TRUE(w.core.state().jobs.empty());
  EXPECT_EQ(w.finished.back().job.state, JobState::stopped);
  w.check_replay();
}

TEST(Core, AFailedRankStopsItsGang) {
  World w;
  w.must(AgentHello{offer("n1", 8), {}});
  w.must(AgentHello{offer("n2", 8), {}});
  auto job = w.job(8);
  job.spec.nodes = 2;
  w.must(job);
  const auto tasks = w.core.state().find_job(JobId(1))->tasks;
  ASSERT_EQ(tasks.size(), 2u);
  w.report(tasks[1], TaskState::ended, {.kind = ExitKind::exited, .code = 9});
  EXPECT_EQ(w.core.state().find_task(tasks[0])->state, TaskState::stopping);
  w.report(tasks[0], TaskState::ended, {.kind = ExitKind::stopped, .signal = 15});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::failed);
  EXPECT_EQ(w.finished[0].job.reason, "rank 1: exit code 9");
  w.check_replay();
}

TEST(Core, FairShareGoesOnCountingAfterARestart) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(w.job(1));
  auto restored = restore(image(w.core.state()));
  ASSERT_TRUE(restored);
  const Event end{.seq = w.core.state().seq + 1,
                  .at = w.now + hours(1),
                  .actor = "",
                  .request_id = "",
                  .body = TaskEnded{.task = w.task_of(JobId(1)),
                                    .exit = {},
                                    .usage = {},
                                    .lease_to = w.now + hours(1),
                                    .cost = {}}};
  State live = std::move(*restored);
  apply(live, end);
  w.core.replay(end);
  EXPECT_EQ(live.index.contents().usage.at(0).milli_seconds,
            w.core.state().index.contents().usage.at(0).milli_seconds);
  EXPECT_GT(live.index.contents().usage.at(0).milli_seconds, 0);
}

TEST(Core, RecordedTimeDoesNotRunBackwardsOverARestart) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  const WallTime before = w.core.state().at;
  auto restored = restore(image(w.core.state()));
  ASSERT_TRUE(restored);
  Core again(std::move(*restored), World::prices());
  const auto step = again.execute(w.job(1), {"user:ana", ""}, before - hours(3));
  ASSERT_TRUE(step);
  EXPECT_EQ(step->events.front().at, before);
}

TEST(Core, TheSameIdempotencyKeySubmitsOnce) {
  World w;
  auto job = w.job(1);
  job.idempotency_key = "k";
  w.must(job);
  w.must(job);
  EXPECT_EQ(w.core.state().jobs.size(), 1u);
  EXPECT_EQ(w.core.state().job_by_key.at("ana:k"), JobId(1));
  w.check_replay();
}

TEST(Core, AnEnvironmentIsNotReachedByItsDigest) {
  World w;
  SubmitJob secret = w.job(0);
  secret.env = {{"PASSWORD", "x"}};
  w.must(secret);
  const std::string digest = w.core.state().jobs.at(JobId(1)).spec->env_digest;
  ASSERT_FALSE(digest.empty());
  SubmitJob thief = w.job(0);
  thief.spec.env_digest = digest;
  w.must(thief);
  EXPECT_EQ(w.core.state().jobs.at(JobId(2)).spec->env_digest, "");
  w.must(AddSchedule{"nightly", "*/5 * * * *", thief});
  EXPECT_EQ(w.core.state().schedules.begin()->second.spec->env_digest, "");
  w.check_replay();
}

TEST(Core, SchedulesSubmitAndDoNotPileUp) {
  World w;
  w.must(AddSchedule{"nightly", "*/5 * * * *", w.job(0)});
  const WallTime first = w.core.state().schedules.begin()->second.next_at;
  w.now = first;
  w.must(Tick{});
  EXPECT_EQ(w.core.state().jobs.size(), 1u);
  w.now = w.core.state().schedules.begin()->second.next_at;
  w.must(Tick{});
  EXPECT_EQ(w.core.state().jobs.size(), 1u) << "the run before has not ended";
  w.check_replay();
}

TEST(Core, AScheduleStopsSubmittingWhenItsUserHasLeftTheProject) {
  World w;
  w.must(AddUser{"ben", "ben"});
  w.must(SetMember{"default", "ben", roles::member});
  SubmitJob job = w.job(0);
  job.user = w.core.state().user_by_name("ben")->id;
  w.must(AddSchedule{"nightly", "*/5 * * * *", job});
  w.must(SetMember{"default", "ben", std::nullopt});
  w.now = w.core.state().schedules.begin()->second.next_at;
  w.must(Tick{});
  EXPECT_TRUE(w.core.state().jobs.empty());
  EXPECT_EQ(get<ScheduleFired>(w.history.back().body).skipped,
            "its user may no longer submit to the project");
  w.check_replay();
}

TEST(Core, RefusesAnEnvironmentAndADirectoryNoProcessCanHave) {
  World w;
  for (const std::string& name : {std::string(), std::string("A=B"), std::string("A\0B", 3)}) {
    SubmitJob job = w.job(0);
    job.env[name] = "x";
    EXPECT_EQ(w.run(job).error().code, Code::invalid);
  }
  SubmitJob job = w.job(0);
  job.env["A"] = std::string("x\0y", 3);
  EXPECT_EQ(w.run(job).error().code, Code::invalid);
  job = w.job(0);
  job.spec.cwd = std::string("/tmp\0x", 6);
  EXPECT_EQ(w.run(job).error().code, Code::invalid);
}

TEST(Core, TokensAuthenticateUntilTheyExpireOrAreRevoked) {
  World w;
  w.must(AddUser{"bo", "", roles::member});
  w.must(CreateToken{.name = "laptop",
                     .hash = "hash-bo",
                     .user = "bo",
                     .scope = TokenScope::full,
                     .project = "",
                     .life = hours(1)});
  EXPECT_EQ(authenticate(w.core.state(), "hash-bo", w.now)->name, "bo");
  const auto expired = authenticate(w.core.state(), "hash-bo", w.now + hours(3));
  ASSERT_FALSE(expired);
  EXPECT_TRUE(expired.error().message.starts_with("the token \"laptop\" expired 2 h ago ("))
      << expired.error().message;
  EXPECT_FALSE(authenticate(w.core.state(), "nonsense", w.now));
  w.must(RevokeToken{w.core.state().token_by_hash.at("hash-bo")});
  EXPECT_FALSE(authenticate(w.core.state(), "hash-bo", w.now));
  w.check_replay();
}

TEST(Core, ASessionIsItsTokenForATime) {
  World w;
  w.must(AddUser{"bo", "", roles::member});
  w.must(CreateToken{.name = "laptop",
                     .hash = "hash-bo",
                     .user = "bo",
                     .scope = TokenScope::read,
                     .project = "",
                     .life = hours(1)});
  const TokenId parent = w.core.state().token_by_hash.at("hash-bo");
  // It takes everything from the token, whatever it is called with, and ends no later.
  w.must(CreateToken{.name = "dashboard",
                     .hash = session_hash(parent, "s1"),
                     .user = "ana",
                     .scope = TokenScope::full,
                     .project = "",
                     .life = hours(12)});
  const TokenId session = w.core.state().token_by_hash.at(session_hash(parent, "s1"));
  const auto who = authenticate(w.core.state(), session_hash(parent, "s1"), w.now);
  ASSERT_TRUE(who);
  EXPECT_EQ(who->name, "bo");
  EXPECT_EQ(who->scope, TokenScope::read);
  EXPECT_EQ(w.core.state().tokens.at(session).expires_at,
            w.core.state().tokens.at(parent).expires_at);
  EXPECT_EQ(session_parent(w.core.state().tokens.at(session)), parent);
  EXPECT_FALSE(session_parent(w.core.state().tokens.at(parent)));
  EXPECT_FALSE(authenticate(w.core.state(), "s1", w.now));
  // None comes from a session, or from a token that is not there.
  EXPECT_FALSE(w.run(CreateToken{.name = "dashboard",
                                 .hash = session_hash(session, "s2"),
                                 .user = "bo",
                                 .scope = TokenScope::read,
                                 .project = "",
                                 .life = hours(12)}));
  EXPECT_FALSE(w.run(CreateToken{.name = "dashboard",
                                 .hash = session_hash(TokenId(99), "s2"),
                                 .user = "bo",
                                 .scope = TokenScope::read,
                                 .project = "",
                                 .life = hours(12)}));
  w.must(RevokeToken{parent});
  EXPECT_FALSE(authenticate(w.core.state(), session_hash(parent, "s1"), w.now));
  EXPECT_FALSE(principal_of(w.core.state(), session, w.now));
  EXPECT_FALSE(w.core.state().tokens.contains(session));
  w.check_replay();
}

TEST(Core, AddedUsersCannotRunJobsAsRoot) {
  World w;
  for (const AddUser& command :
       {AddUser{"eve", "root", roles::member}, AddUser{"eve", "root", roles::admin},
        AddUser{"root", "", roles::member}, AddUser{"eve", "0", roles::member}})
    EXPECT_FALSE(w.run(command));
  EXPECT_TRUE(w.run(AddUser{"eve", "nobody", roles::member}));
}

// Whatever can be asked, in whatever order.
class RandomRequests {
 public:
  explicit RandomRequests(std::uint64_t seed) : rng_(seed) {}

  void step() {
    w.now = w.now + milliseconds(static_cast<std::int64_t>(rng_.below(2000)));
    switch (rng_.below(9)) {
      case 0:
        return join();
      case 1:
      case 2:
        return submit();
      case 3:
      case 4:
      case 5:
        return report();
      case 6:
        return stop();
      case 7:
        return lose_node();
      case 8:
        (void)w.run(Tick{});
        return connect_again();
    }
  }

  World w;

 private:
  const State& state() const { return w.core.state(); }
  NodeId some_node() { return NodeId(1 + rng_.below(static_cast<std::uint64_t>(nodes_))); }
  auto some_job() {
    return std::next(state().jobs.begin(),
                     static_cast<std::ptrdiff_t>(rng_.below(state().jobs.size())));
  }

  void join() {
    if (nodes_ < 4)
      (void)w.run(
          AgentHello{offer("n" + std::to_string(nodes_++), static_cast<int>(rng_.below(5))), {}});
  }

  void submit() {
    auto job = w.job(rng_.chance(0.5) ? 0.25 * static_cast<double>(1 + rng_.below(3))
                                      : static_cast<double>(rng_.below(4)));
    job.spec.retries = static_cast<std::uint32_t>(rng_.below(2));
    job.spec.spot = rng_.chance(0.3);
    job.spec.rerun_if_lost = rng_.chance(0.3);
    job.spec.priority = static_cast<std::int32_t>(rng_.below(3));
    if (rng_.chance(0.2))
      job.spec.array = ArraySpec{0, rng_.below(5), 1, rng_.below(3)};
    if (rng_.chance(0.2))
      job.spec.nodes = 2;
    if (rng_.chance(0.3) && !state().jobs.empty()) {
      const auto before = some_job();
      job.spec.after = {{before->first, static_cast<AfterKind>(rng_.below(3))}};
    }
    if (rng_.chance(0.5))
      job.env["N"] = std::to_string(rng_.below(3));
    (void)w.run(job);
  }

  void report() {
    std::vector<TaskId> ids;
    for (const auto& [id, t] : state().tasks)
      if (t.state != TaskState::ended)
        ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    if (ids.empty())
      return;
    const TaskId id = ids[rng_.below(ids.size())];
    w.report(id, rng_.chance(0.3) ? TaskState::running : TaskState::ended,
             {.kind = ExitKind::exited, .code = static_cast<int>(rng_.below(2))});
  }

  void stop() {
    if (state().jobs.empty())
      return;
    const auto job = some_job();
    (void)w.run(StopJob{rng_.chance(0.2) && job->second.array ? job->second.array : job->first, "",
                        rng_.chance(0.5)});
  }

  void lose_node() {
    if (nodes_ == 0)
      return;
    if (rng_.chance(0.5))
      (void)w.run(NodeSilent{some_node()});
    else
      (void)w.run(NodeFenced{some_node()});
  }

  // An agent that connects again has forgotten some of its tasks.
  void connect_again() {
    if (nodes_ == 0)
      return;
    const Node& node = std::next(state().nodes.begin(),
                                 static_cast<std::ptrdiff_t>(rng_.below(state().nodes.size())))
                           ->second;
    std::vector<TaskStatus> known;
    if (const auto on = state().tasks_on.find(node.id); on != state().tasks_on.end())
      for (TaskId id : on->second)
        if (rng_.chance(0.8))
          known.push_back({.task = id, .state = TaskState::running});
    NodeOffer again = node.offer;
    if (rng_.chance(0.1))
      again.boot_id += "x";
    (void)w.run(AgentHello{again, known});
  }

  Rng rng_;
  int nodes_ = 0;
};

// The invariants hold after every event, and replay equals living.
TEST(Core, RandomHistoriesKeepTheInvariantsAndReplay) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomRequests requests(seed);
    for (int step = 0; step < 150; ++step) {
      requests.step();
      if (testing::Test::HasFatalFailure())
        return;
    }
    requests.w.check_replay();
  }
}

TEST(Cron, MatchesAsCronDoes) {
  const auto at = [](const char* text, std::int64_t after_s) {
    return next_match(*parse_cron(text), {after_s * 1'000'000'000}).ns / 1'000'000'000;
  };
  EXPECT_EQ(at("* * * * *", 0), 60);
  EXPECT_EQ(at("30 2 * * *", 0), 2 * 3600 + 30 * 60);
  EXPECT_EQ(at("0 0 1 * *", 86400), 31 * 86400);
  EXPECT_EQ(at("0 0 * * 1", 0), 4 * 86400) << "1970-01-01 was a Thursday";
  EXPECT_EQ(at("@hourly", 3599), 3600);
  EXPECT_EQ(at("0 0 29 2 *", 0), 789 * 86400ll);
  EXPECT_EQ(at("0 0 30 2 *", 0), 0);
  for (const char* bad :
       {"", "* * * *", "60 * * * *", "* * 0 * *", "a * * * *", "5-1 * * * *", "*/0 * * * *"})
    EXPECT_FALSE(parse_cron(bad)) << bad;
}

TEST(Core, TextsAreRepairedBeforeTheyCount) {
  World w;
  w.must(AgentHello{offer("n1", 1), {}});
  w.must(w.job(1));
  const TaskId task = w.task_of(JobId(1));
  w.report(task, TaskState::running);
  w.must(StopJob{JobId(1), "cut\xc3", false});
  EXPECT_EQ(w.core.state().find_job(JobId(1))->reason, "cut\xef\xbf\xbd");
  w.check_replay();
}

TEST(Core, AJournalFromBeforeTextsWereCheckedIsRead) {
  const auto event =
      decode_event(1, WallTime{1}, "job_stopping",
                   "{\"actor\":\"user:a\xc3\",\"event\":{\"job\":1,\"reason\":\"cut\xc3\"}}");
  ASSERT_TRUE(event) << event.error().message;
  EXPECT_EQ(get<JobStopping>(event->body).reason, "cut\xef\xbf\xbd");
  const auto broken = decode_event(7, WallTime{1}, "job_stopping", "{");
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("record 7 (job_stopping)"), std::string::npos)
      << broken.error().message;
}

}  // namespace
}  // namespace billow::control
