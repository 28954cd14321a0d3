// Nothing that an event causes happens before the event is durable: replies, orders to agents,
// watchers and observers wait for the journal, in its order.
#include "head/engine.h"

#include <gtest/gtest.h>

#include "base/crypto.h"
#include "store/sim_journal.h"

namespace billow::head {
namespace {

struct HandClock final : Clock {
  WallTime wall_now{1'800'000'000'000'000'000};
  SteadyTime steady_now{1'000'000'000};
  WallTime wall() const override { return wall_now; }
  SteadyTime steady() const override { return steady_now; }
  void pass(Duration d) {
    wall_now = wall_now + d;
    steady_now = steady_now + d;
  }
};

NodeOffer offer(std::string name, int gpus) {
  NodeOffer o;
  o.name = std::move(name);
  o.boot_id = "boot";
  for (int i = 0; i < gpus; ++i)
    o.gpus.push_back({.index = i,
                      .uuid = "u" + std::to_string(i),
                      .vendor = "nvidia",
                      .model = "NVIDIA H100",
                      .type = "H100",
                      .mem_mib = 81559});
  o.cpu_milli = 16000;
  o.mem_mib = 65536;
  return o;
}

struct EngineTest : testing::Test {
  HandClock clock;
  SimDisk disk;
  std::unique_ptr<SimJournal> journal;
  std::unique_ptr<Engine> engine;
  std::vector<std::string> log;  // what left the engine, in order

  EngineTest() { open(); }
  void open() {
    engine.reset();
    journal = std::make_unique<SimJournal>(disk, 1);
    JournalHooks hooks;
    hooks.on_durable = [this](Seq durable) {
      if (engine)
        engine->on_durable(durable);
    };
    journal->set_hooks(std::move(hooks));
    auto restored = Engine::restore(
        {.journal = journal.get(),
         .clock = &clock,
         .deliver =
             [this](const control::Effect& effect) {
               if (holds_alternative<wire::agent_v1::Start>(effect.message))
                 log.push_back("start");
             },
         .observe = [this](const control::State&, const Event& event) -> std::function<void()> {
           if (!holds_alternative<JobsSubmitted>(event.body))
             return {};
           return [this] {
             log.push_back("observed");
           };
         }},
        {});
    ASSERT_TRUE(restored) << restored.error().message;
    engine = std::move(*restored);
    run(StartHead{.version = "1",
                  .epoch = journal->epoch(),
                  .admin = "ana",
                  .admin_token_hash = sha256_hex("a"),
                  .node_token_hash = sha256_hex("n")});
    run(AgentHello{offer("n1", 2), {}});
    settle();
    log.clear();
  }
  void run(const Command& command, Engine::Done done = {}) {
    engine->execute(command, {"user:ana", ""}, std::move(done));
  }
  void settle() {
    while (journal->step()) {}
  }
  SubmitJob job() {
    SubmitJob submit;
    submit.spec.argv = {"true"};
    submit.spec.resources.gpus = 1;
    submit.spec.resources.share = {1000, 0};
    submit.user = engine->state().users.begin()->first;
    return submit;
  }
};

TEST_F(EngineTest, NothingLeavesBeforeItIsDurable) {
  const JobId id(engine->state().next_job);
  const auto watch = engine->watch_job(id, [this](const Event&) { log.push_back("watched"); });
  run(job(), [this](Result<std::vector<Event>> events) {
    ASSERT_TRUE(events);
    log.push_back("replied");
  });
  ASSERT_NE(engine->state().find_job(id), nullptr) << "decided and applied";
  EXPECT_TRUE(log.empty()) << "a crash now would take it back";
  settle();
  ASSERT_FALSE(log.empty());
  EXPECT_EQ(log.front(), "observed");
  EXPECT_EQ(std::count(log.begin(), log.end(), "start"), 1);
  EXPECT_EQ(std::count(log.begin(), log.end(), "replied"), 1);
  EXPECT_GE(std::count(log.begin(), log.end(), "watched"), 1) << "it was placed";
}

TEST_F(EngineTest, ARefusalIsAnsweredAtOnce) {
  SubmitJob wrong = job();
  wrong.spec.argv.clear();
  bool refused = false;
  run(wrong, [&](Result<std::vector<Event>> events) { refused = !events; });
  EXPECT_TRUE(refused) << "there is nothing to wait for";
}

TEST_F(EngineTest, AReaderWaitsForWhatItSaw) {
  bool read = false;
  engine->when_durable([&] { read = true; });
  EXPECT_TRUE(read) << "all is durable: at once";
  run(job());
  read = false;
  engine->when_durable([&] { read = true; });
  EXPECT_FALSE(read);
  settle();
  EXPECT_TRUE(read);
}

TEST_F(EngineTest, WhatWasReportedDurableSurvivesACrash) {
  const JobId id(engine->state().next_job);
  run(job());
  settle();
  bool replied = false;
  disk.full = true;  // the second one cannot be written
  disk.ballast_bytes = 0;
  run(job(), [&](Result<std::vector<Event>>) { replied = true; });
  settle();
  EXPECT_FALSE(replied);
  journal->crash();
  disk.full = false;
  open();
  EXPECT_NE(engine->state().find_job(id), nullptr);
}

TEST_F(EngineTest, ASubscriptionThatEndedHearsNothing) {
  const JobId id(engine->state().next_job);
  int heard = 0;
  auto watch = engine->watch_job(id, [&](const Event&) { ++heard; });
  run(job());
  watch.reset();
  settle();
  EXPECT_EQ(heard, 0);
}

TEST_F(EngineTest, AnEndedJobsDocumentIsAtHand) {
  const JobId id(engine->state().next_job);
  run(job());
  settle();
  EXPECT_FALSE(engine->recently_finished(id));
  const TaskId task = engine->state().find_job(id)->tasks.front();
  run(AgentReport{engine->state().nodes.begin()->first,
                  {.task = task,
                   .state = TaskState::ended,
                   .started_at = clock.wall_now,
                   .ended_at = clock.wall_now}});
  settle();
  ASSERT_EQ(engine->state().find_job(id), nullptr);
  const auto document = engine->recently_finished(id);
  ASSERT_TRUE(document);
  EXPECT_EQ((*document)["state"].str_or(""), "succeeded");
  EXPECT_EQ((*document)["id"].uint_or(0), id.value);
  EXPECT_EQ(disk.jobs.at(id).state, "succeeded") << "and in the store";
}

TEST_F(EngineTest, TheClockOfBillsIgnoresTheWallClock) {
  const WallTime before = engine->billed();
  clock.wall_now = clock.wall_now + hours(3);
  EXPECT_EQ(engine->billed(), before);
  clock.pass(seconds(10));
  EXPECT_EQ(engine->billed() - before, seconds(10));
  clock.wall_now = clock.wall_now + hours(-9);
  clock.pass(seconds(10));
  EXPECT_EQ(engine->billed() - before, seconds(20));
}

}  // namespace
}  // namespace billow::head
