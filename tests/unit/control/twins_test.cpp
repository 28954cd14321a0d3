// An order that its provider carried out twice: two machines under one name. Both are in the books,
// the one that is not the node is ended, and no job is lost with it.
#include "core/control/renting/twins.h"
#include "core/control/renting/bills.h"
#include "tests/unit/control/pool_world.h"

namespace billow::control::twins_tests {
namespace {

struct Twins : PoolWorld {
  Machine m;
  JobId job;
  WallTime from_1, from_2;

  Twins() {
    MachineOffer o;
    o.instance = "g6.xlarge";
    o.region = "us-1";
    o.zone = "us-1a";
    o.gpu_type = "H100";
    o.gpus = 8;
    o.price_h = {804'800'000};
    o.price = {o.price_h.value / 3600};
    add("aws", {o}, true, 1);
    job = submit(8);
    must(PlanPools{});
    m = wanted().at(0);
    from_1 = now + seconds(1);
    from_2 = now + seconds(3);
    now = now + seconds(10);
  }
  MachineSighting one(WallTime to = {}) const { return seen("i-1", from_1, to); }
  MachineSighting two(WallTime to = {}) const { return seen("i-2", from_2, to); }
  MachineSighting seen(std::string id, WallTime from, WallTime to) const {
    return {.name = m.name,
            .external = std::move(id),
            .note = to ? "terminated" : "running",
            .ended = static_cast<bool>(to),
            .billed_from = from,
            .billed_to = to};
  }
  void list(std::vector<MachineSighting> machines) {
    must(PoolSeen{m.pool, std::move(machines), now});
  }
  void arrives_as(const std::string& id) {
    const TokenId token = credential(m.name, &m);
    NodeOffer offer = node_offer(m.name, 8);
    if (!id.empty())
      offer.labels["provider-id"] = id;
    must(AgentHello{offer, {}, token});
  }
  const Machine* twin() const {
    const auto found = state().machines.find(m.name + "~2");
    return found == state().machines.end() ? nullptr : &found->second;
  }
  const Machine& main() const { return state().machines.at(m.name); }
  // Both have ended at this moment, and what they cost is in the books, each of them once.
  void check_books(Duration lasted_1, Duration lasted_2) {
    const auto cost = [&](Duration d) {
      return provider_amount(m.offer->price_h, d, {}, {}).value;
    };
    EXPECT_EQ(state().money.books.totals({}, {now.ns + 1}).fleet.value,
              cost(lasted_1) + cost(lasted_2));
    check_replay();
  }
};

TEST(Twins, BeforeOneJoinsTheOtherIsEndedAndIsWasteWithItsNameAndId) {
  Twins w;
  w.list({w.one()});
  w.list({w.one(), w.two()});
  ASSERT_TRUE(w.twin());
  EXPECT_EQ(w.twin()->state, MachineState::releasing);
  EXPECT_EQ(w.twin()->external, "i-2");
  EXPECT_EQ(w.main().state, MachineState::wanted);
  EXPECT_EQ(w.main().external, "i-1");
  // Which of the two asks to join is not known: neither may before the other one has ended.
  w.must(OrderToken{.machine = w.m.name,
                    .hash = "hash-" + w.m.name,
                    .user = w.ana(),
                    .pool = w.m.pool,
                    .life = hours(1)});
  const TokenId token = w.state().token_by_hash.at("hash-" + w.m.name);
  const Status early = w.run(JoinNode{token, w.m.name, *public_key_of(make_signing_key())});
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, Code::unavailable);
  w.now = w.now + seconds(30);
  w.list({w.one(), w.two(w.from_2 + seconds(20))});
  EXPECT_FALSE(w.twin());
  ASSERT_EQ(w.state().machine_bills.size(), 1u);
  EXPECT_EQ(w.state().machine_bills[0].machine, w.m.name + "~2");
  EXPECT_FALSE(w.state().machine_bills[0].used);
  EXPECT_NE(w.state().machine_bills[0].reason.find("i-2"), std::string::npos);
  // Providers list what has ended for a while: it is billed once.
  w.list({w.one(), w.two(w.from_2 + seconds(20))});
  EXPECT_EQ(w.state().machine_bills.size(), 1u);
  w.arrives_as("");
  EXPECT_EQ(w.state().find_job(w.job)->state, JobState::running);
  w.ends(w.job);
  w.now = w.now + seconds(30);
  w.list({w.one(w.from_1 + seconds(60)), w.two(w.from_2 + seconds(20))});
  EXPECT_TRUE(w.machines("").empty());
  w.check_books(seconds(60), seconds(20));
}

TEST(Twins, TheNodeSaysWhichOfTheTwoItIs) {
  for (const std::string id : {"i-1", "i-2"}) {
    SCOPED_TRACE(id);
    Twins w;
    w.list({w.one()});
    w.arrives_as(id);
    ASSERT_EQ(w.state().find_job(w.job)->state, JobState::running);
    w.now = w.now + seconds(5);
    w.list({w.one(), w.two()});
    EXPECT_EQ(w.main().external, id);
    EXPECT_EQ(w.main().state, MachineState::here);
    ASSERT_TRUE(w.twin());
    EXPECT_NE(w.twin()->external, id);
    w.list({w.one(), w.two()});
    EXPECT_EQ(w.twin()->state, MachineState::releasing);
    EXPECT_EQ(w.state().find_job(w.job)->state, JobState::running);
    w.now = w.now + seconds(30);
    const WallTime to = w.now - seconds(1);
    w.list({id == "i-1" ? w.one() : w.one(to), id == "i-1" ? w.two(to) : w.two()});
    EXPECT_FALSE(w.twin());
    EXPECT_EQ(w.state().find_job(w.job)->state, JobState::running);
    w.ends(w.job);
    w.list({w.one(to), w.two(to)});
    EXPECT_TRUE(w.machines("").empty());
    w.check_books(to - w.from_1, to - w.from_2);
  }
}

TEST(Twins, IfNobodyKnowsWhichOneIsTheNodeBothEndAfterItsJobs) {
  Twins w;
  w.list({w.one()});
  w.arrives_as("");
  w.now = w.now + seconds(5);
  w.list({w.one(), w.two()});
  w.list({w.one(), w.two()});
  ASSERT_TRUE(w.twin());
  EXPECT_EQ(w.twin()->state, MachineState::here) << "it may be the node";
  EXPECT_EQ(w.main().state, MachineState::here);
  EXPECT_FALSE(w.state().nodes.begin()->second.drained.empty()) << "no new job starts there";
  EXPECT_EQ(w.state().find_job(w.job)->state, JobState::running);
  w.ends(w.job);
  w.list({w.one(), w.two()});
  EXPECT_EQ(w.twin()->state, MachineState::releasing);
  EXPECT_EQ(w.main().state, MachineState::releasing);
  w.now = w.now + seconds(30);
  const WallTime to = w.now - seconds(1);
  w.list({w.one(to), w.two(to)});
  EXPECT_TRUE(w.machines("").empty());
  w.check_books(to - w.from_1, to - w.from_2);
}

TEST(Twins, OneThatDoesNotRunYetIsNotTheNode) {
  Twins w;
  w.list({w.one()});
  w.arrives_as("");
  w.now = w.now + minutes(5);
  MachineSighting second = w.two();
  second.starting = true;
  w.list({w.one(), second});
  ASSERT_TRUE(w.twin());
  EXPECT_EQ(w.twin()->state, MachineState::releasing);
  EXPECT_EQ(w.main().state, MachineState::here);
  EXPECT_TRUE(w.state().nodes.begin()->second.drained.empty());
}

// The second one joined before any list showed it, and the head's clock was set meanwhile.
TEST(Twins, AClockThatIsSetEndsNoMachineThatMayBeTheNode) {
  for (const Duration step : {hours(-2), hours(2)}) {
    Twins w;
    w.list({w.one()});
    const WallTime right = w.now;
    w.now = right + step;
    w.arrives_as("");
    w.now = right + seconds(10);
    w.list({w.one(), w.two()});
    ASSERT_TRUE(w.twin());
    EXPECT_EQ(w.twin()->state, MachineState::here) << "the job may run there";
    EXPECT_EQ(w.state().find_job(w.job)->state, JobState::running);
  }
}

// One list shows that the node's machine has ended, and a second one that nobody knew.
TEST(Twins, ATwinThatAppearsAsTheMachineEndsIsEndedAndTouchesNoNode) {
  Twins w;
  w.list({w.one()});
  w.arrives_as("");
  w.now = w.now + minutes(2);
  const NodeId node = w.state().nodes.begin()->first;
  w.must(NodeSilent{node, seconds(30)});
  const WallTime to = w.now - seconds(1);
  w.list({w.one(to), w.two()});
  EXPECT_TRUE(w.state().nodes.empty());
  ASSERT_TRUE(w.twin());
  EXPECT_EQ(w.twin()->state, MachineState::releasing);
  w.list({w.one(to), w.two(to)});
  EXPECT_FALSE(w.twin());
  w.check_books(to - w.from_1, to - w.from_2);
}

TEST(Twins, ADeadTwinEndsNothingElse) {
  Twins w;
  w.list({w.one()});
  w.arrives_as("");
  w.now = w.now + seconds(40);
  // The list omits the machine, and shows only what has ended of the other.
  w.list({w.two(w.from_2 + seconds(20))});
  EXPECT_EQ(w.state().find_job(w.job)->state, JobState::running);
  ASSERT_EQ(w.state().machine_bills.size(), 1u);
  w.list({w.one(), w.two(w.from_2 + seconds(20))});
  EXPECT_EQ(w.state().machine_bills.size(), 1u);
  w.ends(w.job);
  w.list({w.one(w.from_1 + seconds(60)), w.two(w.from_2 + seconds(20))});
  w.check_books(seconds(60), seconds(20));
}

TEST(Twins, OneThatComesAfterTheMachineHasEndedIsBookedAndEnded) {
  Twins w;
  w.list({w.one()});
  w.must(StopJob{.job = w.job, .reason = "enough"});
  w.now = w.now + seconds(60);
  w.must(ReleaseMachine{w.m.name, "enough"});
  const WallTime to = w.now - seconds(1);
  w.list({w.one(to)});
  ASSERT_TRUE(w.machines("").empty());
  w.from_2 = w.now + seconds(100);
  w.now = w.now + seconds(110);
  w.list({w.one(to), w.two()});
  ASSERT_TRUE(w.twin());
  EXPECT_EQ(w.twin()->state, MachineState::releasing);
  w.now = w.now + seconds(10);
  w.list({w.one(to), w.two(w.from_2 + seconds(15))});
  EXPECT_TRUE(w.machines("").empty());
  w.check_books(to - w.from_1, seconds(15));
}

// The pool is removed before any list shows the second machine.
TEST(Twins, ALateOrderOfARemovedPoolIsBookedAndEnded) {
  Twins w;
  w.list({w.one()});
  w.must(StopJob{.job = w.job, .reason = "enough"});
  w.must(RemovePool{"aws"});
  w.now = w.now + seconds(60);
  const WallTime to = w.now - seconds(1);
  w.list({w.one(to)});
  ASSERT_TRUE(w.machines("").empty());
  ASSERT_EQ(w.state().pools.size(), 1u) << "its provider is looked at for a while longer";
  EXPECT_TRUE(is_only_watched(w.state(), w.state().pools.begin()->second));
  w.from_2 = w.now + seconds(100);
  w.now = w.now + seconds(110);
  w.list({w.one(to), w.two()});
  ASSERT_TRUE(w.twin());
  EXPECT_EQ(w.twin()->state, MachineState::releasing);
  EXPECT_FALSE(is_only_watched(w.state(), w.state().pools.begin()->second));
  w.must(RemovePool{"aws"});
  EXPECT_EQ(w.state().pools.size(), 1u) << "a machine is left";
  w.now = w.now + minutes(1);
  w.list({w.one(to), w.two(w.from_2 + seconds(15))});
  EXPECT_TRUE(is_only_watched(w.state(), w.state().pools.begin()->second));
  w.must(RemovePool{"aws"});
  EXPECT_TRUE(w.state().pools.empty());
  w.check_books(to - w.from_1, seconds(15));
}

// It ended before any list showed it, and is listed for a while longer.
TEST(Twins, OneThatIsFirstListedWhenItHasEndedIsBilledOnce) {
  Twins w;
  w.now = w.now + seconds(60);
  const WallTime to = w.now - seconds(1);
  for (int i = 0; i < 3; ++i)
    w.list({w.one(to)});
  EXPECT_TRUE(w.machines("").empty());
  EXPECT_EQ(w.state().machine_bills.size(), 1u);
  w.check_books(to - w.from_1, {});
}

// A list command may print a machine twice, for example one that asks two overlapping questions.
TEST(Twins, AMachineThatIsListedTwiceIsNoSecondOne) {
  Twins w;
  w.list({w.one(), w.one()});
  EXPECT_FALSE(w.twin()) << "it would be ended by an id that is the machine's own";
  EXPECT_EQ(w.main().state, MachineState::wanted);
  w.arrives_as("");
  w.list({w.one(), w.one()});
  EXPECT_FALSE(w.twin()) << "it would be billed twice";
  EXPECT_EQ(w.main().state, MachineState::here);
  w.check_replay();
}

// The second word of a list command may be anything.
TEST(Twins, AnIdThatChangesIsNoSecondMachine) {
  Twins w;
  w.list({w.seen("starting", w.from_1, {})});
  w.list({w.seen("running", w.from_1, {})});
  EXPECT_EQ(w.machines("").size(), 1u);
  EXPECT_EQ(w.main().external, "running");
}

TEST(Twins, TellingApartTwiceChangesNothing) {
  Twins w;
  w.list({w.one()});
  w.arrives_as("i-2");
  const Pool& pool = w.state().pools.begin()->second;
  const auto once = tell_apart(w.state(), pool, {w.one(), w.two()});
  EXPECT_EQ(tell_apart(w.state(), pool, once), once);
  w.list({w.one(), w.two()});
  const auto later = tell_apart(w.state(), pool, {w.two()});
  EXPECT_EQ(tell_apart(w.state(), pool, later), later);
}

// sbatch timed out and was repeated: one allocation runs, the other one waits for GPUs.
TEST(Twins, OfTwoAllocationsTheOneThatRunsIsKept) {
  PoolWorld w;
  w.must(AddPool{w.pool("fast")});
  w.submit(8);
  w.must(PlanPools{});
  const Machine m = w.wanted().at(0);
  w.now = w.now + seconds(40);
  w.must(PoolSeen{
      m.pool,
      {{.name = m.name, .external = "100", .note = "RUNNING", .billed_from = w.now},
       {.name = m.name, .external = "101", .note = "PENDING (Resources)", .starting = true}},
      w.now});
  EXPECT_EQ(w.state().machines.at(m.name).external, "100");
  ASSERT_EQ(w.machines(MachineState::releasing).size(), 1u);
  EXPECT_EQ(w.machines(MachineState::releasing)[0].external, "101");
  w.check_replay();
}

// One order brings all nodes of a gang.
struct GangTwins : PoolWorld {
  Machine m;
  JobId job;

  GangTwins() {
    Pool p = pool("lp", "command");
    p.capabilities->bills_from_order = true;
    p.price = {1'000'000};
    must(AddPool{p});
    job = submit(8, 2);
    must(PlanPools{});
    m = wanted().at(0);
    now = now + seconds(10);
  }
  MachineSighting seen(std::string id) const { return {.name = m.name, .external = std::move(id)}; }
  void list(const std::vector<std::string>& ids) {
    PoolSeen all{m.pool, {}, now};
    for (const std::string& id : ids)
      all.machines.push_back(seen(id));
    must(all);
  }
  void arrives_as(const std::vector<std::string>& ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      NodeOffer offer = node_offer(fmt::format("{}.{}", m.name, i), 8);
      if (!ids[i].empty())
        offer.labels["provider-id"] = ids[i];
      must(AgentHello{offer, {}, credential(offer.name, &m)});
    }
  }
  bool runs() const { return state().find_job(job)->state == JobState::running; }
};

TEST(GangTwins, AnIdOnWhichNoNodeRunsIsEndedAndBooked) {
  for (const bool one_by_one : {false, true}) {
    SCOPED_TRACE(one_by_one ? "nodes are listed one by one" : "an order has one id");
    GangTwins w;
    const std::vector<std::string> own = {"i-1", one_by_one ? "i-2" : "i-1"};
    std::vector<std::string> ids = {"i-1"};
    if (one_by_one)
      ids.push_back("i-2");
    w.list(ids);
    w.arrives_as(own);
    w.list(ids);
    ASSERT_TRUE(w.runs());
    EXPECT_EQ(w.machines("").size(), 1u);
    const WallTime since = w.now;
    std::vector<std::string> more = ids;
    more.insert(more.begin(), "i-9");
    w.list(more);
    ASSERT_EQ(w.machines(MachineState::releasing).size(), 1u);
    const Machine twin = w.machines(MachineState::releasing).at(0);
    EXPECT_EQ(twin.name, w.m.name + "~2");
    EXPECT_EQ(twin.external, "i-9");
    EXPECT_EQ(twin.nodes, one_by_one ? 1u : 2u);
    EXPECT_EQ(w.state().machines.at(w.m.name).external, "i-1");
    EXPECT_TRUE(w.runs());
    w.now = w.now + seconds(60);
    w.list(more);
    w.list(ids);
    EXPECT_FALSE(w.state().machines.contains(twin.name));
    ASSERT_EQ(w.state().machine_bills.size(), 1u);
    EXPECT_EQ(w.state().machine_bills[0].machine, twin.name);
    EXPECT_EQ(w.state().machine_bills[0].amount.value,
              (w.now - since).ns / 1'000 * static_cast<std::int64_t>(twin.nodes));
    EXPECT_TRUE(w.runs());
    w.check_replay();
  }
}

TEST(GangTwins, WhatMayBeItsNodesIsNoTwin) {
  const std::vector<std::vector<std::string>> said = {
      {},              // they have not joined
      {"i-1"},         // one of them has
      {"", ""},        // they do not say
      {"i-1", "i-2"},  // one in each of two orders
      {"i-1", "x-7"},  // the list has other ids than the agents
  };
  for (const auto& ids : said) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(ids, " ")));
    GangTwins w;
    w.list({"i-1", "i-2"});
    w.arrives_as(ids);
    w.list({"i-1", "i-2"});
    EXPECT_EQ(w.machines("").size(), 1u);
    EXPECT_EQ(w.machines(MachineState::releasing).size(), 0u);
    EXPECT_EQ(w.runs(), ids.size() == 2);
    w.check_replay();
  }
}

TEST(LateOrders, ARemovedPoolIsLookedAtUntilItIsRemovedAgainOrAnotherTakesOver) {
  PoolWorld w;
  Pool pool = w.pool("cloud");
  pool.kind = "command";
  pool.capabilities = PoolCapabilities{.several_nodes_at_once = true, .list_is_final = false};
  w.must(AddPool{pool});
  w.must(RemovePool{"cloud"});
  EXPECT_TRUE(w.state().pools.empty()) << "it has never ordered anything";
  const auto ordered_and_removed = [&] {
    w.must(AddPool{pool});
    w.submit(8);
    w.must(PlanPools{});
    const Machine m = w.machines().at(0);
    w.must(OrderFailed{m.name, "sold out"});
    w.must(RemovePool{"cloud"});
    ASSERT_EQ(w.state().pools.size(), 1u);
    EXPECT_TRUE(is_only_watched(w.state(), w.state().pools.begin()->second));
  };
  ordered_and_removed();
  w.now = w.now + hours(5);
  w.must(PoolSeen{w.state().pools.begin()->first, {}, w.now});
  ASSERT_EQ(w.state().pools.size(), 1u);
  // Another kind would not list what an order brings; the same kind takes over.
  Pool other = pool;
  other.kind = "ec2";
  EXPECT_FALSE(w.run(AddPool{other}));
  w.must(AddPool{pool});
  ASSERT_EQ(w.state().pools.size(), 1u);
  const Pool& next = w.state().pools.begin()->second;
  EXPECT_EQ(next.state, PoolState::active);
  EXPECT_EQ(next.ended.size(), 1u);
  w.must(RemovePool{"cloud"});
  EXPECT_TRUE(is_only_watched(w.state(), w.state().pools.begin()->second));
  w.must(RemovePool{"cloud"});
  EXPECT_TRUE(w.state().pools.empty());
  EXPECT_FALSE(w.run(RemovePool{"cloud"}));
  w.check_replay();
}

}  // namespace
}  // namespace billow::control::twins_tests
