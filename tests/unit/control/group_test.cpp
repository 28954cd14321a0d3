// Groups: jobs with roles.
#include <set>

#include "base/limits.h"
#include "base/text.h"
#include "sharing_world.h"

namespace billow::control::sharing_tests {
namespace {

using wire::agent_v1::Stop;

RoleSpec role(std::string name, std::uint32_t count, int gpus) {
  RoleSpec r;
  r.name = std::move(name);
  r.count = count;
  r.argv = {"run", r.name};
  r.resources.gpus = gpus;
  r.resources.share = {gpus > 0 ? 1000 : 0, 0};
  return r;
}

struct Groups : World {
  JobId start(std::vector<RoleSpec> roles) {
    SubmitJob submit = job(0);
    submit.spec.argv.clear();
    submit.spec.resources = {};
    submit.spec.roles = std::move(roles);
    submit.env = {{"SHARED", "1"}, {"LR", "3"}};
    return this->submit(submit);
  }
  const Job& of(JobId id) { return *core.state().find_job(id); }
  TaskId member(JobId id, std::size_t rank) { return of(id).tasks.at(rank); }
  void member_ends(JobId id, std::size_t rank, ExitStatus exit = {}) {
    const Task& task = *core.state().find_task(member(id, rank));
    must(AgentReport{task.node,
                     {.task = task.id,
                      .state = TaskState::ended,
                      .started_at = task.lease_from,
                      .ended_at = now,
                      .exit = std::move(exit)}});
  }
  std::vector<Start> starts() const {
    std::vector<Start> out;
    for (const Effect& e : effects)
      if (const auto* s = get_if<Start>(&e.message))
        out.push_back(*s);
    return out;
  }
  std::set<TaskId> stops() const {
    std::set<TaskId> out;
    for (const Effect& e : effects)
      if (const auto* s = get_if<Stop>(&e.message))
        out.insert(s->task);
    return out;
  }
};

const ExitStatus crashed{.kind = ExitKind::signaled, .code = 0, .signal = 11};
const ExitStatus was_stopped{.kind = ExitKind::stopped, .code = 143};

TEST(Group, EveryMemberKnowsItsRoleAndTheAddressesOfAll) {
  Groups w;
  NodeOffer a = offer("a", 8);
  a.address = "10.0.0.1";
  w.must(AgentHello{a, {}});
  RoleSpec reward = role("reward-model", 1, 1);
  reward.env = {{"LR", "9"}};
  reward.own_env = true;
  reward.surroundings.image = "docker.io/library/python:3.12";
  RoleSpec trainer = role("trainer", 1, 4);
  trainer.cwd = "/work";
  const JobId id = w.start({trainer, role("rollout", 2, 1), reward});
  ASSERT_EQ(w.state(id), JobState::running);
  EXPECT_EQ(w.of(id).spec->nodes, 4u);
  const std::vector<Start> starts = w.starts();
  ASSERT_EQ(starts.size(), 4u) << "members may share a node";
  const Environment& first = starts[0].env;
  EXPECT_EQ(starts[0].argv, (std::vector<std::string>{"run", "trainer"}));
  EXPECT_EQ(starts[0].cwd, "/work");
  EXPECT_EQ(first.at("BILLOW_ROLE"), "trainer");
  EXPECT_EQ(first.at("BILLOW_GROUP_ROLES"), "trainer,rollout,reward-model");
  EXPECT_EQ(first.at("SHARED"), "1");
  EXPECT_FALSE(first.contains("RANK"));
  std::set<std::string> all;
  for (const char* name : {"TRAINER", "ROLLOUT", "REWARD_MODEL"})
    for (const std::string& address :
         split(first.at(fmt::format("BILLOW_GROUP_{}_ADDRESSES", name)), ',')) {
      EXPECT_TRUE(address.starts_with("10.0.0.1:")) << address;
      all.insert(address);
    }
  EXPECT_EQ(all.size(), 4u) << "each has a port of its own";
  const Environment& second = starts[2].env;
  EXPECT_EQ(second.at("BILLOW_ROLE"), "rollout");
  EXPECT_EQ(second.at("BILLOW_ROLE_INDEX"), "1");
  EXPECT_EQ(second.at("RANK"), "1");
  EXPECT_EQ(second.at("WORLD_SIZE"), "2");
  EXPECT_TRUE(
      second.at("BILLOW_GROUP_ROLLOUT_ADDRESSES").ends_with(":" + second.at("BILLOW_PORT")));
  const Environment& last = starts[3].env;
  EXPECT_FALSE(last.contains("SHARED")) << "an image gets only what was named for it";
  EXPECT_EQ(last.at("LR"), "9");
  EXPECT_EQ(starts[3].surroundings.image, "docker.io/library/python:3.12");
  EXPECT_TRUE(starts[0].surroundings.image.empty());
  w.check_replay();
}

TEST(Group, NothingStartsUnlessAllMembersFit) {
  Groups w;
  w.must(AgentHello{offer("a", 4), {}});
  w.must(AgentHello{offer("b", 4), {}});
  const JobId one = w.start({role("a", 1, 3), role("b", 1, 3)});
  const JobId two = w.start({role("a", 1, 3), role("b", 1, 3)});
  EXPECT_EQ(w.state(one), JobState::running);
  EXPECT_EQ(w.state(two), JobState::queued);
  EXPECT_TRUE(w.of(two).tasks.empty());
  w.end(one);
  EXPECT_EQ(w.state(two), JobState::running);
  EXPECT_EQ(w.of(two).tasks.size(), 2u);
  w.check_replay();
}

TEST(Group, ServicesAreStoppedWhenTheOthersHaveEnded) {
  Groups w;
  w.must(AgentHello{offer("a", 8), {}});
  RoleSpec server = role("server", 2, 1);
  server.service = true;
  const JobId id = w.start({role("main", 1, 1), server});
  w.effects.clear();
  w.member_ends(id, 0);
  EXPECT_EQ(w.of(id).stopping, StopCause::served);
  EXPECT_EQ(w.stops(), (std::set{w.member(id, 1), w.member(id, 2)}));
  w.member_ends(id, 1, was_stopped);
  w.member_ends(id, 2, crashed);
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::succeeded);
  w.check_replay();
}

TEST(Group, AServiceThatEndsByItselfHasFailed) {
  Groups w;
  w.must(AgentHello{offer("a", 8), {}});
  RoleSpec server = role("server", 1, 1);
  server.service = true;
  const JobId id = w.start({role("main", 1, 1), server});
  w.member_ends(id, 1);
  EXPECT_EQ(w.of(id).stopping, StopCause::rank_failed);
  EXPECT_TRUE(w.of(id).reason.starts_with("server:")) << w.of(id).reason;
  w.member_ends(id, 0, was_stopped);
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::failed);
}

TEST(Group, AFailedMemberIsReplacedAloneWithinTheRetriesOfItsRole) {
  Groups w;
  w.must(AgentHello{offer("a", 8), {}});
  RoleSpec worker = role("worker", 2, 1);
  worker.retries = 1;
  const JobId id = w.start({role("main", 1, 1), worker});
  const std::vector<TaskId> before = w.of(id).tasks;
  const std::string port = w.starts()[2].env.at("BILLOW_PORT");
  w.effects.clear();
  w.member_ends(id, 2, crashed);
  EXPECT_EQ(w.member(id, 0), before[0]);
  EXPECT_EQ(w.member(id, 1), before[1]);
  ASSERT_NE(w.member(id, 2), before[2]);
  EXPECT_TRUE(w.stops().empty());
  ASSERT_EQ(w.starts().size(), 1u);
  EXPECT_EQ(w.starts()[0].env.at("BILLOW_PORT"), port) << "the others still reach it";
  EXPECT_EQ(w.starts()[0].env.at("BILLOW_REPAIRS"), "1");
  w.check_replay();
  w.member_ends(id, 1, crashed);
  EXPECT_EQ(w.of(id).stopping, StopCause::none) << "each member has its own retries";
  w.member_ends(id, 2, crashed);
  EXPECT_EQ(w.of(id).stopping, StopCause::rank_failed);
  EXPECT_TRUE(w.of(id).reason.starts_with("worker.1:")) << w.of(id).reason;
  w.check_replay();
}

TEST(Group, OneRoleRestartsAlone) {
  Groups w;
  w.must(AgentHello{offer("a", 8), {}});
  const JobId id = w.start({role("main", 1, 1), role("worker", 2, 1)});
  const std::vector<TaskId> before = w.of(id).tasks;
  w.effects.clear();
  w.must(RestartRole{id, "worker", "new weights"});
  EXPECT_EQ(w.stops(), (std::set{before[1], before[2]}));
  EXPECT_FALSE(w.run(RestartRole{id, "worker", ""})) << "it restarts already";
  w.check_replay();
  for (std::size_t rank : {1u, 2u})
    w.member_ends(id, rank, was_stopped);
  EXPECT_EQ(w.state(id), JobState::running);
  EXPECT_EQ(w.member(id, 0), before[0]);
  EXPECT_NE(w.member(id, 1), before[1]);
  EXPECT_NE(w.member(id, 2), before[2]);
  w.effects.clear();
  w.must(RestartRole{id, "worker.1", ""});
  EXPECT_EQ(w.stops(), (std::set{w.member(id, 2)}));
  EXPECT_FALSE(w.run(RestartRole{id, "wroker", ""}));
  EXPECT_FALSE(w.run(RestartRole{id, "worker.7", ""}));
  w.end(id);
  w.end(id);
  EXPECT_EQ(w.finished.back().job.state, JobState::succeeded);
  w.check_replay();
}

// Two were asked to restart, and one of them found a place. Nothing of the group has failed.
TEST(Group, AGroupWithoutAPlaceForAMemberThatRestartsIsQueuedAgain) {
  Groups w;
  w.must(AgentHello{offer("a", 3), {}});
  const JobId id = w.start({role("main", 1, 1), role("worker", 2, 1)});
  w.must(RestartRole{id, "worker", "new weights"});
  w.member_ends(id, 1, was_stopped);
  ASSERT_EQ(w.of(id).stopping, StopCause::none);
  w.must(DrainNode{NodeId(1), "nothing starts there"});
  w.member_ends(id, 2, was_stopped);
  w.wait(limits::repair_wait_max + seconds(1));
  ASSERT_EQ(w.of(id).stopping, StopCause::rank_failed);
  for (std::size_t rank : {0u, 1u})
    w.member_ends(id, rank, was_stopped);
  EXPECT_EQ(w.state(id), JobState::queued);
  EXPECT_TRUE(w.finished.empty());
  w.check_replay();
}

TEST(Group, AClockThatIsSetDoesNotEndTheWaitForAMember) {
  Groups w;
  w.must(AgentHello{offer("a", 2), {}});
  w.billed = w.now;
  const JobId id = w.start({role("main", 1, 1), role("worker", 1, 1)});
  w.must(RestartRole{id, "worker", "new weights"});
  w.must(DrainNode{NodeId(1), "nothing starts there"});
  w.member_ends(id, 1, was_stopped);
  w.wait(hours(2));
  EXPECT_EQ(w.of(id).stopping, StopCause::none) << "the clock was set";
  w.billed = w.billed + limits::repair_wait_max + seconds(1);
  w.wait(seconds(1));
  EXPECT_EQ(w.of(id).stopping, StopCause::rank_failed);
  w.check_replay();
}

// The group goes on even if nothing of it runs for a moment.
TEST(Group, TheLastLiveMemberCanRestart) {
  Groups w;
  w.must(AgentHello{offer("a", 2), {}});
  const JobId id = w.start({role("first", 1, 1), role("second", 1, 1)});
  w.member_ends(id, 0);
  w.must(RestartRole{id, "second", ""});
  w.must(DrainNode{NodeId(1), "nothing starts there"});
  w.member_ends(id, 1, was_stopped);
  EXPECT_EQ(w.state(id), JobState::running);
  w.check_replay();
  w.must(DrainNode{NodeId(1), ""});
  EXPECT_EQ(w.core.state().find_task(w.member(id, 1))->state, TaskState::starting);
  w.member_ends(id, 1);
  EXPECT_EQ(w.finished.back().job.state, JobState::succeeded);
  w.check_replay();
}

TEST(Group, AGroupThatWaitsForItsOnlyMemberCanBeStopped) {
  Groups w;
  w.must(AgentHello{offer("a", 2), {}});
  const JobId id = w.start({role("only", 1, 1)});
  w.must(RestartRole{id, "only", ""});
  w.must(DrainNode{NodeId(1), "nothing starts there"});
  w.member_ends(id, 0, was_stopped);
  EXPECT_EQ(w.state(id), JobState::running);
  w.must(StopJob{id, "enough", false});
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.state, JobState::stopped);
  w.check_replay();
}

TEST(Group, ALostMemberIsReplacedOnlyIfItMayRunTwice) {
  for (const bool may : {true, false}) {
    Groups w;
    for (const char* name : {"a", "b", "c"})
      w.must(AgentHello{offer(name, 2), {}});
    SubmitJob submit = w.job(0);
    submit.spec.resources = {};
    submit.spec.roles = {role("a", 1, 2), role("b", 1, 2)};
    submit.spec.rerun_if_lost = may;
    const JobId id = w.submit(submit);
    const TaskId other = w.member(id, 0), gone = w.member(id, 1);
    w.must(AgentReport{w.core.state().find_task(gone)->node,
                       {.task = gone, .state = TaskState::running, .started_at = w.now}});
    const NodeId node = w.core.state().find_task(gone)->node;
    w.must(NodeSilent{node});
    w.must(NodeFenced{node});
    if (may) {
      EXPECT_EQ(w.member(id, 0), other);
      EXPECT_NE(w.core.state().find_task(w.member(id, 1))->node, node);
      EXPECT_EQ(w.of(id).stopping, StopCause::none);
    } else {
      EXPECT_EQ(w.member(id, 1), gone) << "it may still run there";
      EXPECT_EQ(w.of(id).stopping, StopCause::none);
    }
    w.check_replay();
  }
}

TEST(Group, MistakesAreRefusedByName) {
  Groups w;
  w.must(AgentHello{offer("a", 4), {}});
  const auto refusal = [&](std::vector<RoleSpec> roles, auto change) {
    SubmitJob submit = w.job(0);
    submit.spec.resources = {};
    submit.spec.roles = std::move(roles);
    change(submit.spec);
    const Status s = w.run(submit);
    return s ? std::string("accepted") : s.error().message;
  };
  const auto as_is = [](JobSpec&) {
  };
  EXPECT_NE(refusal({role("a", 1, 1), role("a", 1, 1)}, as_is).find("two roles"),
            std::string::npos);
  EXPECT_NE(refusal({role("A b", 1, 1)}, as_is).find("valid name"), std::string::npos);
  EXPECT_NE(refusal({role("a", 0, 1)}, as_is).find("role a"), std::string::npos);
  EXPECT_NE(refusal({role("a", 1, 1), role("b", 1, 5)}, as_is).find("role b"), std::string::npos);
  EXPECT_NE(refusal({role("a", 3, 2)}, as_is).find("together"), std::string::npos);
  EXPECT_NE(refusal({role("a", 4'000'000'000u, 0)}, as_is).find("256 members"), std::string::npos);
  EXPECT_NE(refusal({role("a", 1, 1)},
                    [](JobSpec& s) {
                      s.array = ArraySpec{0, 1, 1, 0};
                    })
                .find("array"),
            std::string::npos);
  EXPECT_NE(
      refusal({role("a", 1, 1)}, [](JobSpec& s) { s.roles[0].service = true; }).find("never end"),
      std::string::npos);
  EXPECT_NE(refusal({role("a", 1, 1)}, [](JobSpec& s) { s.roles[0].argv.clear(); }).find("role a"),
            std::string::npos);
}

TEST(Group, TheBillIsTheSumOfTheMembers) {
  Groups w;
  w.must(AgentHello{offer("a", 8), {}});
  const JobId id = w.start({role("main", 1, 4), role("worker", 2, 1)});
  w.now = w.now + seconds(100);
  w.end(id);
  ASSERT_EQ(w.finished.size(), 1u);
  EXPECT_EQ(w.finished[0].job.cost.value, 6 * 100 * 1'000'000) << "six GPUs for 100 s";
  ASSERT_EQ(w.finished[0].job.role_costs.size(), 2u);
  EXPECT_EQ(w.finished[0].job.role_costs[0].value, 4 * 100 * 1'000'000);
  EXPECT_EQ(w.finished[0].job.role_costs[1].value, 2 * 100 * 1'000'000);
  ASSERT_EQ(w.leases.size(), 3u);
}

TEST(Group, APreemptedSpotGroupLeavesAsAWholeAndComesBack) {
  Groups w;
  w.must(AgentHello{offer("a", 4), {}});
  SubmitJob submit = w.job(0);
  submit.spec.resources = {};
  submit.spec.spot = true;
  submit.spec.roles = {role("a", 1, 2), role("b", 2, 1)};
  const JobId id = w.submit(submit);
  w.wait(minutes(30));
  const JobId other = w.submit(w.job(1));
  EXPECT_EQ(w.of(id).stopping, StopCause::preempted);
  for (std::size_t rank : {0u, 1u, 2u})
    w.member_ends(id, rank, was_stopped);
  EXPECT_EQ(w.state(other), JobState::running);
  EXPECT_EQ(w.state(id), JobState::queued);
  w.end(other);
  EXPECT_EQ(w.state(id), JobState::running);
  w.check_replay();
}

}  // namespace
}  // namespace billow::control::sharing_tests
