// Pools in the core: which machines the queue orders, which go back, what a refusal does, and which
// agents may connect.
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/rng.h"
#include "core/control/core.h"
#include "tests/unit/control/plan_all.h"

namespace billow::control::pool_tests {
namespace {

NodeOffer offer(std::string name, int gpus, std::string type = "H100") {
  NodeOffer o;
  o.name = std::move(name);
  o.boot_id = "boot";
  for (int i = 0; i < gpus; ++i)
    o.gpus.push_back({.index = i,
                      .uuid = o.name + "-" + std::to_string(i),
                      .vendor = "nvidia",
                      .type = type,
                      .mem_mib = 81559});
  o.cpu_milli = 64000;
  o.mem_mib = 65536;
  return o;
}

struct World {
  Core core{State{}, {}};
  std::vector<Event> history;
  WallTime now{1'000'000'000'000};

  World() {
    must(StartHead{.version = "1",
                   .epoch = 1,
                   .admin = "ana",
                   .admin_token_hash = "h",
                   .node_token_hash = "n"});
  }
  const State& state() const { return core.state(); }
  Status run(const Command& command) {
    auto step = core.execute(command, {"head", ""}, now);
    if (!step)
      return pass(step.error());
    keep(std::move(*step));
    plan_all(core, [&] { keep(core.plan(now)); });
    return {};
  }
  void keep(Step step) {
    for (Event& e : step.events) {
      const auto decoded = decode_event(
          e.seq, e.at, visit([](const auto& b) { return std::decay_t<decltype(b)>::kind; }, e.body),
          encode_event(e));
      ASSERT_TRUE(decoded) << decoded.error().message;
      history.push_back(*decoded);
    }
    const Status ok = check_invariants(core.state());
    ASSERT_TRUE(ok) << ok.error().message;
  }
  void must(const Command& command) {
    const Status s = run(command);
    ASSERT_TRUE(s) << s.error().message;
  }
  UserId ana() const { return state().users.begin()->first; }
  JobId submit(int gpus, std::uint32_t nodes = 1) {
    SubmitJob job;
    job.spec.argv = {"true"};
    job.spec.resources.gpus = gpus;
    job.spec.resources.share = {1000, 0};
    job.spec.nodes = nodes;
    job.user = ana();
    const JobId id(state().next_job);
    must(job);
    return id;
  }
  Pool pool(std::string name, std::string kind = "slurm") {
    Pool p;
    p.name = std::move(name);
    p.kind = kind;
    p.capabilities = PoolCapabilities{.sizes_to_demand = kind == "slurm",
                                      .several_nodes_at_once = kind != "cloud",
                                      .list_is_final = kind == "slurm"};
    p.machines_max = 4;
    p.gpus = 8;
    p.gpu_type = "H100";
    p.partition = "gpu";
    p.gres = "gpu:h100";
    if (kind == "command")
      p.create_command = p.list_command = p.delete_command = "true";
    return p;
  }
  std::vector<Machine> machines(std::string_view pool = {}) const {
    std::vector<Machine> out;
    for (const auto& [name, m] : state().machines)
      if (pool.empty() || name.starts_with(std::string(pool) + "-"))
        out.push_back(m);
    return out;
  }
  // The credential of a node whose machine was ordered, or that joins by itself.
  TokenId credential(const std::string& node, const Machine* m = nullptr) {
    const std::string hash = "hash-" + (m ? m->name : node);
    if (m && !state().token_by_hash.contains(hash))
      must(OrderToken{
          .machine = m->name, .hash = hash, .user = ana(), .pool = m->pool, .life = hours(1)});
    if (!m)
      must(CreateToken{.name = "join",
                       .hash = hash,
                       .user = "ana",
                       .scope = TokenScope::join,
                       .life = hours(1)});
    const std::string key = *public_key_of(make_signing_key());
    must(JoinNode{state().token_by_hash.at(hash), node, key});
    const auto made = state().token_by_hash.find(node_key_hash(key));
    return made == state().token_by_hash.end() ? TokenId{} : made->second;
  }
  // The engine made it, and its agents say hello.
  void arrives(const Machine& m) {
    for (std::uint32_t i = 0; i < m.nodes; ++i) {
      const std::string node = m.nodes > 1 ? m.name + "." + std::to_string(i) : m.name;
      const TokenId token = credential(node, &m);
      must(AgentHello{offer(node, m.gpus), {}, token});
    }
  }
  void check_replay() {
    Core again(State{}, {});
    for (const Event& e : history)
      again.replay(e);
    EXPECT_TRUE(image(again.state()) == image(core.state()));
    const auto restored = restore(image(core.state()));
    ASSERT_TRUE(restored);
    EXPECT_TRUE(image(*restored) == image(core.state()));
  }
  void ends(JobId job) {
    const TaskId task = state().find_job(job)->tasks.front();
    must(
        AgentReport{state().find_task(task)->node,
                    {.task = task, .state = TaskState::ended, .started_at = now, .ended_at = now}});
  }
};

TEST(Pools, AskForAsFewGpusAsTheQueueNeedsAndForWholeNodesForGangs) {
  World w;
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

TEST(Pools, AGangDoesNotOrderAgainWhileItsNodesArriveOneByOne) {
  World w;
  w.must(AddPool{w.pool("fast")});
  const JobId gang = w.submit(8, 2);
  w.must(PlanPools{});
  ASSERT_EQ(w.machines().size(), 1u);
  const Machine m = w.machines()[0];
  w.must(AgentHello{offer(m.name + ".0", m.gpus), {}, w.credential(m.name + ".0", &m)});
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1u) << "the other half is on its way";
  w.must(AgentHello{offer(m.name + ".1", m.gpus), {}, w.credential(m.name + ".1", &m)});
  EXPECT_EQ(w.state().find_job(gang)->state, JobState::running);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 1u);
  w.check_replay();
}

TEST(Pools, OrderGangNodesOneByOneIfTheProviderNeedsThat) {
  World w;
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
  World w;
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
  w.now = w.now + hours(1);
  w.must(PoolSeen{id, {}, w.now});
  EXPECT_TRUE(w.state().pools.empty());
  w.check_replay();
}

TEST(Pools, NeverAskForMoreThanTheirMaximum) {
  World w;
  w.must(AddPool{w.pool("fast")});
  for (int i = 0; i < 100; ++i)
    w.submit(8);
  for (int i = 0; i < 5; ++i)
    w.must(PlanPools{});
  EXPECT_EQ(w.machines().size(), 4u);
}

TEST(Pools, AMachineIsGivenBackWhenIdleAndNotBefore) {
  World w;
  w.must(AddPool{w.pool("fast")});
  const JobId job = w.submit(8);
  w.must(PlanPools{});
  w.arrives(w.machines()[0]);
  EXPECT_EQ(w.state().find_job(job)->state, JobState::running);
  EXPECT_FALSE(w.machines()[0].idle_since);
  w.now = w.now + hours(3);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines()[0].state, MachineState::here);
  w.ends(job);
  w.now = w.now + minutes(4);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines()[0].state, MachineState::here);
  w.now = w.now + minutes(2);
  w.must(PlanPools{});
  EXPECT_EQ(w.machines()[0].state, MachineState::releasing);
  // Nothing new starts on a machine that is on its way out.
  const JobId late = w.submit(8);
  EXPECT_EQ(w.state().find_job(late)->state, JobState::queued);
  w.now = w.now + minutes(1);
  w.must(PoolSeen{w.machines()[0].pool, {}, w.now});
  for (const Machine& m : w.machines())
    EXPECT_NE(m.state, MachineState::releasing);
  EXPECT_TRUE(w.state().nodes.empty());
  EXPECT_FALSE(w.state().token_by_hash.contains("hash-fast-1"))
      << "the credential goes with the machine";
  w.check_replay();
}

TEST(Pools, ARefusalGoesToTheNextPoolAndTheFirstIsRetriedLater) {
  World w;
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
  World w;
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
  World w;
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
  World w;
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
  World w;
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

TEST(Pools, AVanishedMachineLosesItsJobsAndOneThatNeverJoinedPausesThePool) {
  World w;
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

TEST(Pools, AProviderThatSaysWhyAMachineEndedIsQuoted) {
  World w;
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
    World w;
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
  World w;
  const TokenId token = w.credential("box");
  EXPECT_FALSE(w.run(AgentHello{offer("other", 1), {}, token}));
  w.must(AgentHello{offer("box", 1), {}, token});
  EXPECT_FALSE(w.run(
      JoinNode{w.state().token_by_hash.at("hash-box"), "box", *public_key_of(make_signing_key())}))
      << "the name is taken";
  w.must(AddPool{w.pool("fast")});
  w.submit(2);
  w.must(PlanPools{});
  const Machine m = w.machines()[0];
  const TokenId pooled = w.credential(m.name, &m);
  EXPECT_FALSE(w.run(AgentHello{offer(m.name, 8), {}, pooled})) << "more GPUs than were asked for";
  EXPECT_FALSE(w.run(AgentHello{offer(m.name, 2, "A100"), {}, pooled})) << "of another type";
  EXPECT_FALSE(w.run(AgentHello{offer(m.name + ".0", 2), {}, pooled}));
  w.must(AgentHello{offer(m.name, 2), {}, pooled});
  EXPECT_EQ(w.state().node_by_name(m.name)->pool, m.pool);
  w.must(RevokeToken{pooled});
  EXPECT_FALSE(w.run(AgentHello{offer(m.name, 2), {}, pooled}));
  w.check_replay();
}

TEST(Joining, ACardIsInOneMachineOnly) {
  World w;
  const TokenId a = w.credential("a"), b = w.credential("b");
  w.must(AgentHello{offer("a", 2), {}, a});
  NodeOffer liar = offer("b", 1);
  liar.gpus[0].uuid = "a-1";
  EXPECT_FALSE(w.run(AgentHello{liar, {}, b}));
  w.must(AgentHello{offer("b", 1), {}, b});
}

}  // namespace
}  // namespace billow::control::pool_tests
