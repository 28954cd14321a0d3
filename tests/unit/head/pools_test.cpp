// What the head believes of a provider's lists and answers: machines that a list lacks, orders that
// are under way, answers that were lost, and wall clocks that are set.
#include "head/pools.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/crypto.h"
#include "base/log.h"
#include "core/control/decide/decide.h"
#include "store/sim_journal.h"
#include "tests/unit/control/node_offer.h"

namespace billow::head::pools_tests {
namespace {

struct HandClock final : Clock {
  WallTime wall_now{1'800'000'000'000'000'000};
  SteadyTime steady_now{1'000'000'000'000};
  WallTime wall() const override { return wall_now; }
  SteadyTime steady() const override { return steady_now; }
};

// Answers as the test says.
struct Script {
  MachineOffer offer;
  std::function<pool::Ordered(const pool::Order&)> want;
  std::vector<MachineSighting> listed;
  std::vector<std::string> ordered, released;  // by name, by external name
  bool hold = false;                           // answers to orders are held back
  std::vector<std::function<void()>> held;
  bool silent = false;      // lists fail
  bool hold_lists = false;  // they hang
  int lists = 0;
  std::set<std::string> hanging;  // the ends of these machines, by external name
  std::string refusal;            // of every end; empty: machines are ended
  bool ends_by_name = false;
};

class ScriptedPool final : public pool::Pool {
 public:
  explicit ScriptedPool(Script& script) : script_(script) {}
  pool::Ordered want(const pool::Order& order) override {
    script_.ordered.push_back(order.machine.name);
    return script_.want(order);
  }
  Result<std::vector<MachineSighting>> nodes() override {
    ++script_.lists;
    if (script_.silent)
      return fail(Code::unavailable, "the provider does not answer");
    return script_.listed;
  }
  Status release(const MachineSighting& machine) override {
    script_.released.push_back(machine.external.empty() ? machine.name : machine.external);
    if (!script_.refusal.empty())
      return fail(Code::unavailable, script_.refusal);
    return {};
  }
  bool ends_by_name() const override { return script_.ends_by_name; }
  Result<std::vector<MachineOffer>> offers() override { return std::vector{script_.offer}; }

 private:
  Script& script_;
};

class Pooled : public ::testing::Test {
 protected:
  Pooled() {
    configure_log({.level = LogLevel::error});
    script.offer = {.instance = "g6.xlarge", .region = "us-1", .zone = "us-1a"};
    script.offer.gpu_type = "H100";
    script.offer.gpus = 8;
    script.offer.price = {1000};
    script.want = [](const pool::Order&) {
      return pool::Ordered{};
    };
    JournalHooks hooks;
    hooks.on_durable = [this](Seq durable) {
      if (engine)
        engine->on_durable(durable);
    };
    journal.set_hooks(std::move(hooks));
    engine = std::move(*Engine::restore({.journal = &journal,
                                         .clock = &clock,
                                         .deliver = [](const control::Effect&) {},
                                         .observe = {}},
                                        {}));
    run(StartHead{.version = "1",
                  .epoch = journal.epoch(),
                  .admin = "ana",
                  .admin_token_hash = sha256_hex("a"),
                  .node_token_hash = sha256_hex("n")});
    Pool pool;
    pool.name = "cloud";
    pool.kind = "ec2";
    pool.capabilities = PoolCapabilities{.sizes_to_demand = false,
                                         .several_nodes_at_once = true,
                                         .list_is_final = false,
                                         .from_offers = true,
                                         .bills_from_order = true,
                                         .list_lag = minutes(5)};
    pool.machines_max = 4;
    pool.idle = minutes(1);
    pool.offers = {script.offer};
    run(AddPool{pool});
    start();
  }

  void start() {
    Pools::Options options;
    options.head_url = options.fingerprint = options.authority = [] {
      return std::string();
    };
    options.owner = state().users.begin()->first;
    options.credential = [](const Pool&) -> Result<std::string> {
      return std::string();
    };
    options.needed = [](NodeId) {
      return false;
    };
    options.make = [this](const Pool&,
                          const pool::Options&) -> Result<std::unique_ptr<pool::Pool>> {
      return std::make_unique<ScriptedPool>(script);
    };
    struct HandLane final : Pools::Lane {
      explicit HandLane(Script& s) : script(s) {}
      Status submit(std::function<std::function<void()>()> work) override {
        const std::size_t orders = script.ordered.size(), ends = script.released.size();
        const int lists = script.lists;
        auto answer = work();
        const bool hangs =
            (script.hold && script.ordered.size() > orders) ||
            (script.hold_lists && script.lists > lists) ||
            (script.released.size() > ends && script.hanging.contains(script.released.back()));
        if (hangs)
          script.held.push_back(std::move(answer));
        else
          answer();
        return {};
      }
      Script& script;
    };
    options.lane = [this] {
      return std::make_unique<HandLane>(script);
    };
    pools = std::make_unique<Pools>(
        loop, clock, [this]() -> Engine& { return *engine; }, std::move(options));
  }

  const control::State& state() const { return engine->state(); }
  void run(const Command& command) {
    engine->execute(command, {"head", ""}, {});
    while (journal.step())
      continue;
  }
  void pass(Duration d) {
    for (Duration passed; passed < d; passed = passed + seconds(5)) {
      clock.wall_now = clock.wall_now + seconds(5);
      clock.steady_now = clock.steady_now + seconds(5);
      pools->look();
      while (journal.step())
        continue;
    }
  }
  // One that needs a whole machine.
  void submit() {
    SubmitJob job;
    job.spec.argv = {"true"};
    job.spec.resources.gpus = 8;
    job.spec.resources.share = {1000, 0};
    job.user = state().users.begin()->first;
    run(job);
  }
  void stop_all() {
    for (const auto& [id, job] : std::map(state().jobs))
      run(StopJob{.job = id, .reason = "enough"});
  }
  // A machine is ordered for a job that is then stopped: the machine is to be given back.
  void order_in_vain() {
    submit();
    pass(seconds(5));
    ASSERT_EQ(script.ordered, std::vector<std::string>{"cloud-1"});
    stop_all();
  }
  // Machines are ordered and listed; their jobs wait for them.
  void order(int count) {
    for (int i = 0; i < count; ++i)
      submit();
    pass(seconds(5));
    ASSERT_EQ(script.ordered.size(), static_cast<std::size_t>(count));
    for (int i = 1; i <= count; ++i) {
      script.listed.push_back(sighting(fmt::format("i-{}", i).c_str()));
      script.listed.back().name = fmt::format("cloud-{}", i);
    }
    pass(seconds(15));
    ASSERT_EQ(state().machines.at("cloud-1").external, "i-1");
  }
  MachineState state_of(const char* machine) const { return state().machines.at(machine).state; }
  bool has(const std::string& machine) const { return state().machines.contains(machine); }
  static pool::Ordered no_answer(const pool::Order&) {
    return std::unexpected(pool::Refusal{RefusalKind::no_answer, "no answer"});
  }
  MachineSighting sighting(const char* external) const {
    return {.name = "cloud-1", .external = external, .billed_from = clock.wall_now};
  }

  HandClock clock;
  SimDisk disk;
  SimJournal journal{disk, 1};
  std::unique_ptr<Engine> engine;
  net::Loop loop;  // never runs
  Script script;
  std::unique_ptr<Pools> pools;
};

TEST_F(Pooled, AMachineThatWasNeverCreatedIsForgottenThoughTheClockWasSetBack) {
  script.want = no_answer;
  order_in_vain();
  clock.wall_now = clock.wall_now - hours(6);
  pass(minutes(4));
  EXPECT_TRUE(has("cloud-1")) << "a list may lag by five minutes";
  pass(minutes(12));
  EXPECT_FALSE(has("cloud-1")) << "every list since then seems to be older than its order";
}

TEST_F(Pooled, AMachineMayBeListedLateThoughTheClockWasSetForward) {
  script.want = no_answer;
  order_in_vain();
  pass(seconds(20));
  clock.wall_now = clock.wall_now + hours(6);
  pass(minutes(2));
  ASSERT_TRUE(has("cloud-1")) << "it is forgotten, and its costs with it";
  script.listed = {sighting("i-1")};
  pass(seconds(20));
  ASSERT_FALSE(script.released.empty());
  EXPECT_EQ(script.released.front(), "i-1");
  script.listed[0].ended = true;
  script.listed[0].billed_to = script.listed[0].billed_from + minutes(1);
  pass(seconds(20));
  ASSERT_EQ(state().machine_bills.size(), 1u);
  EXPECT_EQ(state().machine_bills[0].amount.value, 60'000);
}

TEST_F(Pooled, AMachineIsNotForgottenWhileItsOrderIsUnderWay) {
  script.hold = true;
  order_in_vain();
  pass(minutes(8));
  ASSERT_TRUE(has("cloud-1")) << "the order may still bring it";
  for (const auto& answer : std::exchange(script.held, {}))
    answer();
  pass(minutes(4));
  EXPECT_TRUE(has("cloud-1")) << "a list may lag by five minutes";
  pass(minutes(2));
  EXPECT_FALSE(has("cloud-1"));
}

TEST_F(Pooled, AMachineThatAppearsLateMayBeOmittedOnceMore) {
  script.want = no_answer;
  order_in_vain();
  pass(minutes(5) + seconds(15));
  ASSERT_TRUE(has("cloud-1")) << "one list after the lag ended it";
  script.listed = {sighting("i-1")};
  pass(seconds(20));
  ASSERT_FALSE(script.released.empty()) << "it is billed";
}

TEST_F(Pooled, ARefusalAfterALostAnswerDoesNotMeanThatThereIsNoMachine) {
  int orders = 0;
  script.want = [&](const pool::Order& order) -> pool::Ordered {
    if (++orders == 1)
      return no_answer(order);
    return std::unexpected(pool::Refusal{RefusalKind::capacity, "sold out"});
  };
  submit();
  pass(seconds(30));
  ASSERT_GE(orders, 2);
  ASSERT_TRUE(has("cloud-1")) << "the first order may have created it";
  script.listed = {sighting("i-1")};
  pass(seconds(20));
  ASSERT_FALSE(script.released.empty());
  EXPECT_EQ(script.released.front(), "i-1");
}

TEST_F(Pooled, AHeadThatHasJustStartedDoesNotBelieveOneList) {
  submit();
  pass(seconds(5));
  script.listed = {sighting("i-1")};
  pass(minutes(6));  // its lag is over
  ASSERT_EQ(state().machines.at("cloud-1").external, "i-1");
  start();
  const auto shown = std::exchange(script.listed, {});
  pass(seconds(10));
  ASSERT_TRUE(has("cloud-1")) << "one list that lacks it ended it";
  script.listed = shown;
  pass(seconds(10));
  EXPECT_TRUE(script.released.empty());
  script.listed.clear();
  pass(minutes(1));
  EXPECT_FALSE(has("cloud-1")) << "list after list lacks it";
}

// What is listed and not in the state may have been ordered by a successor of this head.
TEST_F(Pooled, AStrayIsEndedOnASecondLook) {
  pass(seconds(10));
  script.listed = {sighting("i-9")};
  script.listed[0].name = "cloud-77";
  pools->look();
  clock.steady_now = clock.steady_now + seconds(2);
  pools->look();
  EXPECT_TRUE(script.released.empty());
  pass(seconds(20));
  EXPECT_FALSE(script.released.empty()) << "it is billed";
}

// Its order was answered, and another machine comes of it when the pool is already removed.
TEST_F(Pooled, WhatALateOrderBringsAfterThePoolIsRemovedIsEndedAndBooked) {
  order_in_vain();
  script.listed = {sighting("i-1")};
  pass(seconds(10));
  run(RemovePool{"cloud"});
  script.listed[0].ended = true;
  script.listed[0].billed_to = clock.wall_now;
  pass(minutes(5));
  EXPECT_FALSE(has("cloud-1"));
  script.released.clear();
  script.listed = {sighting("i-2")};
  clock.wall_now = clock.wall_now + hours(9);
  pass(seconds(40));
  EXPECT_TRUE(has("cloud-1~2"));
  EXPECT_EQ(script.released.at(0), "i-2");
  script.listed[0].ended = true;
  script.listed[0].billed_to = clock.wall_now;
  pass(minutes(6));
  EXPECT_TRUE(state().pools.empty());
}

TEST_F(Pooled, ARemovedPoolWhoseProviderDoesNotListIsForgotten) {
  order_in_vain();
  script.listed = {sighting("i-1")};
  run(RemovePool{"cloud"});
  script.listed[0].ended = true;
  script.listed[0].billed_to = clock.wall_now;
  pass(seconds(30));
  ASSERT_FALSE(has("cloud-1"));
  script.silent = true;
  pass(minutes(50));
  EXPECT_FALSE(state().pools.empty());
  pass(minutes(15));
  EXPECT_TRUE(state().pools.empty());
}

// Its first list is also the one that says so, and gives an id that the state never gets.
TEST_F(Pooled, AMachineThatItsProviderCouldNotKeepLeavesTheBooks) {
  submit();
  pass(seconds(5));
  script.listed = {sighting("i-1")};
  script.listed[0].failed = RefusalKind::capacity;
  pass(seconds(15));
  ASSERT_FALSE(script.released.empty());
  stop_all();
  script.listed.clear();
  pass(minutes(1));
  EXPECT_FALSE(has("cloud-1"));
}

TEST_F(Pooled, NothingIsEndedBeforeTheDecisionIsDurable) {
  order_in_vain();
  script.listed = {sighting("i-1")};
  disk.broken = true;  // as of a head that has been replaced: nothing becomes durable any more
  pass(minutes(1));
  ASSERT_EQ(state().machines.at("cloud-1").state, MachineState::releasing);
  EXPECT_TRUE(script.released.empty());
}

// Each of these bills until its provider is asked to end it.
TEST_F(Pooled, AMachineIsEndedWhileAListHangs) {
  order(1);
  script.hold_lists = true;
  pass(seconds(15));
  ASSERT_FALSE(script.held.empty()) << "no list is under way";
  stop_all();
  pass(seconds(15));
  EXPECT_EQ(script.released, std::vector<std::string>{"i-1"});
}

TEST_F(Pooled, AMachineIsEndedWhileListsFail) {
  order(1);
  script.silent = true;
  pass(seconds(15));
  stop_all();
  pass(seconds(15));
  EXPECT_EQ(script.released, std::vector<std::string>{"i-1"});
  EXPECT_TRUE(has("cloud-1")) << "no list has shown its end";
}

TEST_F(Pooled, AMachineIsEndedWhileAnOrderHangs) {
  order(1);
  script.hold = true;
  submit();
  pass(seconds(5));
  ASSERT_EQ(script.ordered.size(), 2u);
  ASSERT_FALSE(script.held.empty()) << "no order is under way";
  stop_all();
  pass(seconds(15));
  EXPECT_TRUE(std::ranges::count(script.released, "i-1")) << "it waits for the order";
}

TEST_F(Pooled, ADeletionThatHangsHoldsUpNoOther) {
  order(2);
  script.hanging = {"i-1"};
  run(ReleaseMachine{"cloud-1", "enough"});
  pass(seconds(15));
  ASSERT_EQ(script.released, std::vector<std::string>{"i-1"});
  run(ReleaseMachine{"cloud-2", "enough"});
  pass(seconds(5));
  EXPECT_TRUE(std::ranges::count(script.released, "i-2")) << "it waits for the other";
  pass(seconds(30));
  EXPECT_EQ(std::ranges::count(script.released, "i-1"), 1) << "its deletion is still under way";
}

// Its provider knows it by its name only.
TEST_F(Pooled, AMachineThatNoListHasShownIsEndedByNameIfListsHang) {
  script.ends_by_name = true;
  submit();
  script.hold_lists = true;
  pass(seconds(5));
  stop_all();
  pass(seconds(20));
  ASSERT_EQ(state_of("cloud-1"), MachineState::releasing);
  EXPECT_TRUE(script.released.empty()) << "a list may yet say its id";
  pass(seconds(30));
  EXPECT_EQ(script.released, std::vector<std::string>{"cloud-1"});
}

TEST_F(Pooled, ADeletionThatFailsIsRepeatedAndShownAfterAMinute) {
  order(1);
  script.refusal = "no right to delete";
  stop_all();
  pass(seconds(45));
  ASSERT_EQ(state_of("cloud-1"), MachineState::releasing);
  EXPECT_GE(script.released.size(), 5u);
  EXPECT_EQ(state().machines.at("cloud-1").note, "");
  pass(seconds(45));
  EXPECT_EQ(state().machines.at("cloud-1").note, "cannot be ended: no right to delete");
  script.refusal.clear();
  pass(seconds(15));
  EXPECT_EQ(state().machines.at("cloud-1").note, "");
}

TEST_F(Pooled, ADeletionThatHangsIsShownAfterAMinute) {
  order(1);
  script.hanging = {"i-1"};
  stop_all();
  pass(seconds(90));
  ASSERT_EQ(state_of("cloud-1"), MachineState::releasing);
  EXPECT_TRUE(state().machines.at("cloud-1").note.starts_with("cannot be ended: no answer for"))
      << state().machines.at("cloud-1").note;
}

// Its delete command succeeds and does nothing.
TEST_F(Pooled, ADeletionWithoutEffectIsShownAfterTenMinutes) {
  order(1);
  stop_all();
  pass(minutes(9));
  EXPECT_EQ(state().machines.at("cloud-1").note, "");
  pass(minutes(2));
  EXPECT_NE(state().machines.at("cloud-1").note.find("accepted"), std::string::npos)
      << state().machines.at("cloud-1").note;
}

}  // namespace
}  // namespace billow::head::pools_tests
