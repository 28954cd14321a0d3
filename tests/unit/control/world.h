// A core driven by hand: commands in, what it said kept so that it can be replayed, the invariants
// checked after each.
#pragma once

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/control/core.h"
#include "tests/unit/control/plan_all.h"

namespace billow::control {

using wire::agent_v1::Settle;
using wire::agent_v1::Start;
using wire::agent_v1::Stop;

// What a node that comes back is told to do. The rules of idleness are repeated for every task it
// knows, and are looked at elsewhere.
inline std::vector<Effect> orders_after_hello(const State& state,
                                              NodeId node,
                                              const std::vector<TaskStatus>& tasks) {
  std::vector<Effect> effects = hello_effects(state, node, tasks);
  std::erase_if(effects, [](const Effect& e) {
    return holds_alternative<wire::agent_v1::SetIdleRules>(e.message);
  });
  return effects;
}

inline NodeOffer offer(std::string name, int gpus, std::string boot = "boot-1") {
  NodeOffer o;
  o.name = std::move(name);
  o.boot_id = std::move(boot);
  for (int i = 0; i < gpus; ++i)
    o.gpus.push_back({.index = i,
                      .uuid = "u" + std::to_string(i),
                      .vendor = "nvidia",
                      .model = "NVIDIA H100",
                      .type = "H100",
                      .mem_mib = 81559,
                      .nvlink_domain = 0});
  o.cpu_milli = 16000;
  o.mem_mib = 65536;
  return o;
}

struct World {
  Core core{State{}, prices()};
  std::vector<Event> history;
  std::vector<Effect> effects;
  std::vector<FinishedJob> finished;
  WallTime now{1'000'000'000'000};

  static ledger::PriceBook prices() {
    ledger::PriceBook book;
    book.set("H100", PriceClass::on_demand, Rate{1'000'000});
    book.set("H100", PriceClass::spot, Rate{400'000});
    book.set("H100", PriceClass::reserved, Rate{600'000});
    book.set(ledger::PriceBook::memory_type, PriceClass::suspended, Rate{1'000});
    return book;
  }
  const StartHead start{
      .version = "1", .epoch = 1, .admin = "ana", .admin_token_hash = "h", .node_token_hash = "n"};
  World() { must(start); }

  void take(Step step) {
    for (auto& e : step.events) {
      const auto decoded = decode_event(e.seq, e.at, wire_kind(e), encode_event(e));
      ASSERT_TRUE(decoded) << decoded.error().message;
      history.push_back(*decoded);
    }
    for (auto& e : step.effects)
      effects.push_back(std::move(e));
    for (auto& j : step.jobs)
      finished.push_back(std::move(j));
    const Status ok = check_invariants(core.state());
    ASSERT_TRUE(ok) << ok.error().message;
  }
  static const char* wire_kind(const Event& e) {
    return visit([](const auto& b) { return std::decay_t<decltype(b)>::kind; }, e.body);
  }
  Status run(const Command& command) {
    auto step = core.execute(command, {"user:ana", "r1"}, now);
    if (!step)
      return pass(step.error());
    take(std::move(*step));
    plan_all(core, [&] { take(core.plan(now)); });
    return {};
  }
  void must(const Command& command) {
    const Status s = run(command);
    ASSERT_TRUE(s) << s.error().message;
  }
  SubmitJob job(double gpus = 1) {
    SubmitJob submit;
    submit.spec.argv = {"true"};
    submit.spec.resources.gpus = gpus >= 1 ? static_cast<int>(gpus) : gpus > 0 ? 1 : 0;
    submit.spec.resources.share = {gpus >= 1 ? 1000 : static_cast<int>(gpus * 1000), 0};
    submit.user = core.state().users.begin()->first;
    return submit;
  }
  TaskId task_of(JobId id) { return core.state().find_job(id)->tasks.front(); }
  void report(TaskId task, TaskState state, ExitStatus exit = {}) {
    must(AgentReport{
        core.state().find_task(task)->node,
        {.task = task, .state = state, .started_at = now, .ended_at = now, .exit = exit}});
  }
  void check_replay() {
    Core again(State{}, {});
    for (const Event& e : history)
      again.replay(e);
    EXPECT_TRUE(image(again.state()) == image(core.state()));
    const auto restored = restore(image(core.state()));
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_TRUE(image(*restored) == image(core.state()));
    EXPECT_TRUE(restored->index.equals(core.state().index))
        << "the index rebuilt from an image plans otherwise";
    const Status ok = check_invariants(*restored);
    EXPECT_TRUE(ok) << ok.error().message;
  }
};

// The same with nodes that stand somewhere, and days that pass.
struct Fleet : World {
  Fleet() { now = WallTime{1'800'000'000'000'000'000}; }
  JobId submit(const SubmitJob& j) {
    const JobId id(core.state().next_job);
    must(j);
    return id;
  }
  void join(std::string name, int gpus, std::map<std::string, std::string> labels = {}) {
    NodeOffer o = offer(std::move(name), gpus);
    o.labels = std::move(labels);
    must(AgentHello{o, {}});
  }
  JobState state(JobId id) const {
    const Job* j = core.state().find_job(id);
    return j ? j->state : JobState::succeeded;
  }
  NodeId node_of(JobId id) { return core.state().find_task(task_of(id))->node; }
  void wait(Duration d) {
    now = now + d;
    must(Tick{});
  }
  Reserve reserve(int gpus, Duration in, Duration span) {
    Reserve r;
    r.user = core.state().users.begin()->first;
    r.resources.gpus = gpus;
    r.resources.share = {1000, 0};
    r.from = now + in;
    r.until = now + in + span;
    return r;
  }
};

}  // namespace billow::control
