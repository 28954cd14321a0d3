// Pools in the core: which machines the queue orders, which go back, what a refusal does, and which
// agents may connect.
#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/rng.h"
#include "tests/unit/control/pool_world.h"

namespace billow::control::pool_tests {
namespace {

TEST(Pools, AskForAsFewGpusAsTheQueueNeedsAndForWholeNodesForGangs) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  w.submit(2);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines().size(), 1u);
  EXPECT_EQ(w.machines()[0].gpus, 2);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1u) << "what is on its way is enough";
  w.submit(4, 2);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines().size(), 2u);
  EXPECT_EQ(w.machines()[1].nodes, 2u);
  EXPECT_EQ(w.machines()[1].gpus, 8);
  w.check_replay();
}

TEST(Pools, AJobThatIsTooLargeIsToldWhatMachinesOfThePoolHave) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  w.submit(1);
  w.must(PlanPools{});
  w.arrives(w.machines()[0]);
  const Status large = admissible(w.state(), PoolWorld::spec(16));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().message, "no node has 16 GPUs; machines of pool fast have at most 8");
  EXPECT_EQ(large.error().hint, "use at most --gpus 8, or several nodes: --nodes 2 --gpus 8");
  EXPECT_TRUE(admissible(w.state(), PoolWorld::spec(8))) << "the pool can bring it";
}

TEST(Pools, AJobWithALargeDiskIsToldWhatMachinesOfThePoolHave) {
  PoolWorld w;
  Pool disks = w.pool("fast");
  disks.capabilities->disk_mib_max = 1000 << 10;
  w.must(AddPool{disks});
  w.submit(1);
  w.must(PlanPools{});
  w.arrives(w.machines()[0]);
  JobSpec wants = PoolWorld::spec(1);
  wants.resources.disk_mib = 1001 << 10;
  const Status large = admissible(w.state(), wants);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().message,
            "no node has 1001 GiB of free disk; machines of pool fast come with at most 1000 GiB");
  EXPECT_EQ(large.error().hint, "use at most --disk 1000G");
  wants.resources.disk_mib = 1000 << 10;
  EXPECT_TRUE(admissible(w.state(), wants)) << "the pool can bring it";
}

TEST(Pools, ExplainNamesIdleMachinesThatHoldGpusWhileAnotherIsOrdered) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId first = w.submit(1);
  w.must(PlanPools{});
  w.arrives(w.machines()[0]);
  w.ends(first);
  const JobId large = w.submit(8);
  w.must(PlanPools{});
  const auto notes = pool_notes(w.state(), *w.state().find_job(large), w.now);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("fast-2 was ordered"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find(" Idle machines (fast-1) hold 1 GPU for "), std::string::npos)
      << notes[0];
}

TEST(Pools, AMachineThatIsSizedHasTheCpusAndTheMemoryOfItsJobs) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  JobSpec one = PoolWorld::spec(3);
  one.resources.cpu_milli = 4000;
  one.resources.mem_mib = 1000;
  for (int i = 0; i < 3; ++i)
    w.submit(one);
  w.submit(0);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines().size(), 2u) << "a third job of 3 GPUs is not cut in two";
  EXPECT_EQ(w.machines()[0].gpus, 6);
  EXPECT_EQ(w.machines()[0].cpu_milli, 8000 + limits::task_cpu_milli_assumed);
  EXPECT_EQ(w.machines()[0].mem_mib, 2000);
  EXPECT_EQ(w.machines()[1].gpus, 3);
  EXPECT_EQ(w.machines()[1].cpu_milli, 4000);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 2u) << "what is on its way is enough";
  one.resources.gpus = 0;
  w.submit(one);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines().size(), 3u) << "their CPUs are all promised";
  EXPECT_EQ(w.machines()[2].gpus, 0);
  EXPECT_EQ(w.machines()[2].cpu_milli, 4000);
  w.check_replay();
}

// A process can outlive its Slurm allocation by the time in which its supervisor waits for the
// agent.
TEST(Pools, WhatMayStillRunIsNotStartedAgainWhateverTheListSays) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  JobSpec asked = PoolWorld::spec(8);
  asked.rerun_if_lost = true;
  const JobId job = w.submit(asked);
  w.must(PlanPools{});
  const Machine m = w.machines()[0];
  w.arrives(m);
  const TaskId task = w.state().find_job(job)->tasks.front();
  const NodeId node = w.state().find_task(task)->node;
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "1"}}, w.now});
  w.now = w.now + minutes(1);
  w.must(PoolSeen{m.pool, {}, w.now});
  EXPECT_EQ(w.state().find_job(job)->tasks.front(), task) << "its agent is still connected";
  w.must(PoolSeen{m.pool, {{.name = m.name, .ended = true, .may_linger = true}}, w.now});
  EXPECT_EQ(w.state().find_job(job)->tasks.front(), task) << "a pod that was deleted by force";
  w.must(NodeSilent{node, limits::agent_unreachable_after});
  w.now = w.now + limits::agent_self_fence;
  w.must(PoolSeen{m.pool, {}, w.now});
  EXPECT_EQ(w.state().find_job(job)->state, JobState::running);
  w.now = w.now + limits::fence_margin + seconds(1);
  w.must(PoolSeen{m.pool, {}, w.now});
  EXPECT_NE(w.state().find_job(job)->state, JobState::running);
  EXPECT_TRUE(w.machines().empty());
  w.check_replay();
}

TEST(Pools, AGangDoesNotOrderAgainWhileItsNodesArriveOneByOne) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId gang = w.submit(8, 2);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines().size(), 1u);
  const Machine m = w.machines()[0];
  w.must(AgentHello{node_offer(m.name + ".0", m.gpus), {}, w.credential(m.name + ".0", &m)});
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1u) << "the other half is on its way";
  w.must(AgentHello{node_offer(m.name + ".1", m.gpus), {}, w.credential(m.name + ".1", &m)});
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1u);
  w.check_replay();
}

TEST(Pools, AGangOfPodsGetsAsManyGpusOnEachNodeAsItNeeds) {
  PoolWorld w;
  Pool pods = w.pool("k8s");
  pods.kind = "kubernetes";
  pods.capabilities->gangs_share_nodes = true;
  w.must(AddPool{pods});
  const JobId gang = w.submit(2, 2);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines().size(), 1u);
  const Machine m = w.machines()[0];
  EXPECT_EQ(m.nodes, 2u);
  EXPECT_EQ(m.gpus, 2) << "of 8";
  for (const char* rank : {".0", ".1"})
    w.must(AgentHello{node_offer(m.name + rank, m.gpus), {}, w.credential(m.name + rank, &m)});
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1u);
  w.check_replay();
}

TEST(Pools, OrderGangNodesOneByOneIfTheProviderNeedsThat) {
  PoolWorld w;
  w.must(AddPool{w.pool("aws", "cloud")});
  const JobId gang = w.submit(8, 3);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines().size(), 3u);
  for (const Machine& m : w.machines()) {
    EXPECT_EQ(m.nodes, 1u);
    EXPECT_EQ(m.gpus, 8);
  }
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 3u) << "the ordered machines are enough";
  for (const Machine& m : w.machines()) {
    w.must(PlanPools{});
    EXPECT_EQ(w.machines().size(), 3u) << "those that are here wait for the others";
    w.arrives(m);
  }
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.check_replay();
}

TEST(Pools, AJournalOfVersion01GivesItsPoolsTheCapabilitiesOfTheirKind) {
  Core core(State{}, {});
  const auto replay = [&](std::uint64_t seq, const char* kind, std::string text) {
    auto event = decode_event(seq, WallTime{1}, kind, text);
    ASSERT_TRUE(event) << event.error().message;
    core.replay(*event);
  };
  replay(1, "pool_added",
         R"({"event":{"pool":{"id":1,"name":"fast","kind":"slurm","partition":"gpu"}}})");
  replay(2, "pool_added", R"({"event":{"pool":{"id":2,"name":"cloud","create_command":"true"}}})");
  replay(3, "pool_denied",
         R"({"event":{"pool":2,"reason":"is being removed","until_ns":9223372036854775807}})");
  const Pool& slurm = core.state().pools.at(PoolId(1));
  const Pool& command = core.state().pools.at(PoolId(2));
  EXPECT_TRUE(slurm.capabilities->sizes_to_demand);
  EXPECT_TRUE(slurm.capabilities->list_is_final);
  EXPECT_EQ(slurm.state, PoolState::active);
  EXPECT_EQ(command.kind, "command");
  EXPECT_FALSE(command.capabilities->sizes_to_demand);
  EXPECT_TRUE(command.capabilities->several_nodes_at_once);
  EXPECT_FALSE(command.capabilities->list_is_final);
  EXPECT_EQ(command.state, PoolState::removing);
}

TEST(Pools, APoolThatIsRemovedEmptiesItsMachinesAndOrdersNoMore) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const PoolId id = w.state().pools.begin()->first;
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  w.arrives(w.machines()[0]);
  w.must(RemovePool{"fast"});
  EXPECT_EQ(w.state().pools.at(id).state, PoolState::removing);
  EXPECT_EQ(w.state().find_job(job)->stopping, StopCause::preempted);
  w.submit(8);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1u);
  w.must(PoolSeen{id, {}, w.now});
  EXPECT_FALSE(w.state().pools.empty()) << "the job was asked to leave, and may still run";
  w.must(NodeSilent{w.state().nodes.begin()->first});
  w.now = w.now + hours(1);
  w.must(PoolSeen{id, {}, w.now});
  EXPECT_TRUE(w.state().pools.empty());
  w.check_replay();
}

TEST(Pools, NeverAskForMoreThanTheirMaximum) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  for (int i = 0; i < 100; ++i)
    w.submit(8);
  for (int i = 0; i < 5; ++i)
    w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 4u);
}

TEST(Pools, ARefusalGoesToTheNextPoolAndTheFirstIsRetriedLater) {
  PoolWorld w;
  Pool cheap = w.pool("cheap", "command"), dear = w.pool("dear", "command");
  cheap.price = {100};
  dear.price = {900};
  w.must(AddPool{dear});
  w.must(AddPool{cheap});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines("cheap").size(), 1u) << "the cheaper one first";
  w.must(OrderFailed{w.machines("cheap")[0].name, "no capacity"});
  w.must(PlanPools{});
  EXPECT_EQ(w.machines("cheap").size(), 0u);
  EXPECT_EQ(w.machines("dear").size(), 1u);
  const auto notes = pool_notes(w.state(), *w.state().find_job(job), w.now);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE((notes[0] + notes[1]).find("no capacity"), std::string::npos);
  w.submit(8);
  w.now = w.now + limits::pool_denied_pause + seconds(1);
  w.must(PlanPools{});
  EXPECT_GE(w.machines("cheap").size(), 1u);
  w.check_replay();
}

TEST(Pools, TheNextPoolIsAskedIfOneIsSlow) {
  PoolWorld w;
  Pool first = w.pool("first", "command"), second = w.pool("second", "command");
  first.order = -1;
  w.must(AddPool{first});
  w.must(AddPool{second});
  w.submit(8);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines("second").size(), 0u);
  w.now = w.now + first.patience + seconds(1);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines("second").size(), 1u);
  EXPECT_EQ(w.machines("first").size(), 1u);
}

TEST(Pools, AnUnneededOrderIsCancelled) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  w.must(StopJob{job, "", false});
  w.must(PlanPools{});
  EXPECT_EQ(w.machines()[0].state, MachineState::wanted) << "not in a hurry";
  w.now = w.now + limits::pool_second_thoughts + seconds(1);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines()[0].state, MachineState::releasing);
}

TEST(Pools, NoMachineForAJobThatAQuotaOrAHoldKeepsBack) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  SubmitJob job;
  job.spec.argv = {"true"};
  job.spec.resources.gpus = 8;
  job.spec.resources.share = {1000, 0};
  job.user = w.ana();
  w.must(job);
  job.spec.after = {{JobId(1), AfterKind::ok}};
  w.must(job);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1u) << "the second waits for the first, not for a machine";
}

TEST(Pools, BeforeAnAllocationEndsNothingNewStartsAndTheRestGoesBackIntoTheQueue) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.machines()[0];
  w.arrives(m);
  const WallTime end = w.now + hours(1);
  w.must(PoolSeen{
      m.pool, {{.name = m.name, .external = "77", .note = "RUNNING", .ends_at = end}}, w.now});
  w.now = end - limits::pool_end_margin + seconds(1);
  w.must(PlanPools{});
  EXPECT_FALSE(w.state().nodes.begin()->second.drained.empty());
  EXPECT_EQ(w.state().find_job(job)->stopping, StopCause::none);
  w.now = end - limits::pool_end_grace + seconds(1);
  w.must(PlanPools{});
  EXPECT_EQ(w.state().find_job(job)->stopping, StopCause::preempted);
  const TaskId task = w.state().find_job(job)->tasks.front();
  w.must(AgentReport{w.state().find_task(task)->node,
                     {.task = task,
                      .state = TaskState::ended,
                      .started_at = w.now,
                      .ended_at = w.now,
                      .exit = {.kind = ExitKind::stopped}}});
  EXPECT_EQ(w.state().find_job(job)->state, JobState::queued);
  w.check_replay();
}

TEST(Pools, AJobThatNeedsLongerThanAnAllocationIsNotRestartedForEver) {
  for (const bool saves : {false, true}) {
    PoolWorld w;
    w.must(AddPool{w.pool("fast")});
    JobSpec asked = PoolWorld::spec(8);
    if (saves) {
      asked.checkpoint_every = minutes(10);
      asked.checkpoint_signal = 10;
      asked.checkpoint_dir = "/shared/checkpoints";
    }
    const JobId job = w.submit(asked);
    w.must(PlanPools{});
    const Machine m = w.machines()[0];
    w.arrives(m);
    const TaskId task = w.state().find_job(job)->tasks.front();
    w.must(AgentReport{w.state().find_task(task)->node,
                       {.task = task, .state = TaskState::running, .started_at = w.now}});
    const WallTime end = w.now + hours(1);
    w.must(PoolSeen{
        m.pool, {{.name = m.name, .external = "77", .note = "RUNNING", .ends_at = end}}, w.now});
    w.now = end - limits::pool_end_grace + seconds(1);
    w.must(PlanPools{});
    EXPECT_EQ(w.state().find_job(job)->stopping, saves ? StopCause::preempted : StopCause::request);
    w.check_replay();
  }
}

TEST(Pools, AJobThatMayOutlastAnAllocationAsksForNone) {
  PoolWorld w;
  Pool pool = w.pool("fast");
  pool.time = hours(1);
  w.must(AddPool{pool});
  JobSpec asked = PoolWorld::spec(8);
  asked.time_limit = hours(2);
  const JobId job = w.submit(asked);
  w.must(PlanPools{});
  EXPECT_TRUE(w.machines().empty());
  const auto notes = pool_notes(w.state(), *w.state().find_job(job), w.now);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("too short for --time"), std::string::npos) << notes[0];
  asked.time_limit = minutes(50);
  w.submit(asked);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1u);
}

TEST(Pools, AVanishedMachineLosesItsJobsAndOneThatNeverJoinedPausesThePool) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.machines()[0];
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "1"}}, w.now});
  w.now = w.now + minutes(1);
  w.must(PoolSeen{m.pool, {}, w.now});
  EXPECT_TRUE(w.machines().empty());
  w.must(PlanPools{});
  EXPECT_TRUE(w.machines().empty()) << "another one would end the same way at once";
  w.now = w.now + limits::pool_denied_pause + seconds(1);
  w.must(PlanPools{});
  const Machine again = w.machines().at(0);
  w.arrives(again);
  w.must(PoolSeen{m.pool, {{.name = again.name, .external = "2"}}, w.now});
  EXPECT_EQ(w.state().find_job(job)->state, JobState::running);
  w.now = w.now + minutes(1);
  w.must(PoolSeen{m.pool, {}, w.now});
  EXPECT_EQ(w.state().find_job(job), nullptr) << "it may not run twice, so it is lost";
  w.check_replay();
}

TEST(Pools, AMachineThatWasTakenAwayBeforeItJoinedIsOrderedAgainSoon) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.machines()[0];
  w.must(PoolSeen{m.pool, {{.name = m.name, .external = "1"}}, w.now});
  w.must(PoolSeen{m.pool,
                  {{.name = m.name,
                    .note = "its pod was deleted",
                    .failed = RefusalKind::capacity,
                    .ended = true}},
                  w.now});
  EXPECT_TRUE(w.machines().empty());
  w.must(PlanPools{});
  EXPECT_TRUE(w.machines().empty()) << "not at once: whoever took it may be doing so again";
  w.now = w.now + limits::pool_second_thoughts + seconds(1);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1U);
  w.check_replay();
}

TEST(Pools, AProviderThatSaysWhyAMachineEndedIsQuoted) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.machines()[0];
  w.must(PoolSeen{m.pool, {{.name = m.name, .note = "no such image", .ended = true}}, w.now});
  EXPECT_TRUE(w.machines().empty());
  EXPECT_NE(w.state().pools.at(m.pool).denied.find("no such image"), std::string::npos);
  w.now = w.now + limits::pool_denied_pause + seconds(1);
  w.must(PlanPools{});
  const Machine again = w.machines().at(0);
  w.arrives(again);
  w.must(PoolSeen{m.pool, {{.name = again.name, .external = "2"}}, w.now});
  EXPECT_EQ(w.state().find_job(job)->state, JobState::running);
  w.must(PoolSeen{
      m.pool, {{.name = again.name, .note = "evicted by its node", .ended = true}}, w.now});
  EXPECT_EQ(w.state().find_job(job), nullptr);
  EXPECT_TRUE(std::ranges::any_of(w.history, [](const Event& e) {
    return encode_event(e).find("evicted by its node") != std::string::npos;
  }));
  EXPECT_LT(w.state().pools.at(m.pool).denied_until, w.now) << "it had joined, so no pause";
  w.check_replay();
}

TEST(Pools, AFleetOfRandomEventsKeepsItsBooks) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    PoolWorld w;
    w.must(AddPool{w.pool("a")});
    w.must(AddPool{w.pool("b", "command")});
    for (int step = 0; step < 150; ++step) {
      w.now = w.now + seconds(rng.between(1, 120));
      switch (rng.below(6)) {
        case 0:
          w.submit(static_cast<int>(rng.between(1, 8)), rng.chance(0.2) ? 2 : 1);
          break;
        case 1:
          w.must(PlanPools{});
          break;
        case 2:
          for (const Machine& m : w.machines())
            if (m.state == MachineState::wanted && rng.chance(0.6)) {
              w.arrives(m);
              break;
            }
          break;
        case 3:
          for (const auto& [id, pool] : std::map(w.state().pools)) {
            PoolSeen seen{id, {}, w.now};
            for (const Machine& m : w.machines())
              if (m.pool == id && rng.chance(0.8))
                seen.machines.push_back(
                    {.name = m.name, .external = "e", .note = "", .ends_at = {}});
            w.must(seen);
          }
          break;
        case 4:
          for (const auto& [id, job] : std::map(w.state().jobs))
            if (job.state == JobState::running && rng.chance(0.5)) {
              for (TaskId t : std::vector(job.tasks)) {
                const Task* task = w.state().find_task(t);
                if (task && task->state != TaskState::ended)
                  w.must(AgentReport{task->node,
                                     {.task = t,
                                      .state = TaskState::ended,
                                      .started_at = w.now,
                                      .ended_at = w.now}});
              }
              break;
            }
          break;
        case 5:
          for (const Machine& m : w.machines())
            if (m.state == MachineState::wanted && rng.chance(0.3)) {
              w.must(OrderFailed{m.name, "no"});
              break;
            }
          break;
      }
      std::map<PoolId, std::uint32_t> nodes;
      for (const Machine& m : w.machines())
        nodes[m.pool] += m.nodes;
      for (const auto& [id, count] : nodes)
        EXPECT_LE(count, w.state().pools.at(id).machines_max);
      if (::testing::Test::HasFatalFailure())
        return;
    }
    w.check_replay();
  }
}

TEST(Joining, ACredentialSpeaksForOneNameAndForWhatWasAskedFor) {
  PoolWorld w;
  const TokenId token = w.credential("box");
  EXPECT_FALSE(w.run(AgentHello{node_offer("other", 1), {}, token}));
  w.must(AgentHello{node_offer("box", 1), {}, token});
  EXPECT_FALSE(w.run(
      JoinNode{w.state().token_by_hash.at("hash-box"), "box", *public_key_of(make_signing_key())}))
      << "the name is taken";
  w.must(AddPool{w.pool("fast")});
  w.submit(2);
  w.must(PlanPools{});
  const Machine m = w.machines()[0];
  const TokenId pooled = w.credential(m.name, &m);
  EXPECT_FALSE(w.run(AgentHello{node_offer(m.name, 8), {}, pooled}))
      << "more GPUs than were asked for";
  EXPECT_FALSE(w.run(AgentHello{node_offer(m.name, 2, "A100"), {}, pooled})) << "of another type";
  EXPECT_FALSE(w.run(AgentHello{node_offer(m.name + ".0", 2), {}, pooled}));
  w.must(AgentHello{node_offer(m.name, 2), {}, pooled});
  EXPECT_EQ(w.state().node_by_name(m.name)->pool, m.pool);
  w.must(RevokeToken{pooled});
  EXPECT_FALSE(w.run(AgentHello{node_offer(m.name, 2), {}, pooled}));
  w.check_replay();
}

TEST(Joining, ACardIsInOneMachineOnly) {
  PoolWorld w;
  const TokenId a = w.credential("a"), b = w.credential("b");
  w.must(AgentHello{node_offer("a", 2), {}, a});
  NodeOffer liar = node_offer("b", 1);
  liar.gpus[0].uuid = "a-1";
  EXPECT_FALSE(w.run(AgentHello{liar, {}, b}));
  w.must(AgentHello{node_offer("b", 1), {}, b});
}

}  // namespace
}  // namespace billow::control::pool_tests
