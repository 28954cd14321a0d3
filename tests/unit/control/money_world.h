// An installation with prices, for tests of money.
#pragma once

#include <gtest/gtest.h>

#include "base/limits.h"
#include "base/rng.h"
#include "core/control/core.h"
#include "core/control/money.h"
#include "tests/unit/control/node_offer.h"
#include "tests/unit/control/plan_all.h"

namespace billow::control::money_tests {
namespace {

constexpr std::int64_t start_ns =
    20'000 * day_ns + 3600ll * 1'000'000'000;  // 01:00 UTC of some day

NodeOffer offer(std::string name, int gpus, bool bills = false) {
  NodeOffer o = node_offer(std::move(name), gpus);
  for (NodeGpu& gpu : o.gpus) {
    gpu.model = "NVIDIA H100";
    gpu.nvlink_domain = 0;
  }
  o.cpu_milli = 16000;
  if (bills)
    o.labels = {{"pool", "cloud"}, {"bills", "yes"}};
  return o;
}

struct World {
  Core core{State{}, prices()};
  std::vector<Event> history;
  std::vector<Effect> effects;
  std::vector<FinishedJob> finished;
  std::vector<ClosedLease> leases;
  std::vector<ledger::Entry> entries;
  std::vector<NodeDay> node_days;
  WallTime wall{start_ns}, billed{start_ns};

  static ledger::PriceBook prices() {
    ledger::PriceBook book;
    book.set("H100", PriceClass::on_demand, Rate{1'000'000});  // $3.60/h
    book.set("H100", PriceClass::spot, Rate{400'000});
    book.set(ledger::PriceBook::memory_type, PriceClass::suspended, Rate{900});
    return book;
  }
  World() {
    must(StartHead{.version = "1",
                   .epoch = 1,
                   .admin = "ana",
                   .admin_token_hash = "h",
                   .node_token_hash = "n"});
  }

  void take(Step step) {
    for (auto& e : step.events) {
      const auto decoded = decode_event(
          e.seq, e.at, visit([](const auto& b) { return std::decay_t<decltype(b)>::kind; }, e.body),
          encode_event(e));
      ASSERT_TRUE(decoded) << decoded.error().message;
      history.push_back(*decoded);
    }
    for (auto& e : step.effects)
      effects.push_back(std::move(e));
    for (auto& j : step.jobs)
      finished.push_back(std::move(j));
    for (auto& l : step.leases)
      leases.push_back(std::move(l));
    for (auto& e : step.entries)
      entries.push_back(std::move(e));
    for (auto& d : step.node_days)
      node_days.push_back(std::move(d));
    const Status ok = check_invariants(core.state());
    ASSERT_TRUE(ok) << ok.error().message;
  }
  Status run(const Command& command) {
    take(core.catch_up(wall, billed));
    auto step = core.execute(command, {"user:ana", "r"}, wall, billed);
    if (!step)
      return pass(step.error());
    take(std::move(*step));
    plan_all(core, [&] { take(core.plan(wall, billed)); });
    return {};
  }
  void must(const Command& command) {
    const Status s = run(command);
    ASSERT_TRUE(s) << s.error().message;
  }
  void pass_time(Duration d) {
    wall = wall + d;
    billed = billed + d;
  }
  JobId submit(int gpus = 1, bool spot = false) {
    SubmitJob c;
    c.spec.argv = {"true"};
    c.spec.resources.gpus = gpus;
    c.spec.resources.share = {1000, 0};
    c.spec.spot = spot;
    c.user = core.state().users.begin()->first;
    const JobId id(core.state().next_job);
    must(c);
    return id;
  }
  const Job* job(JobId id) { return core.state().find_job(id); }
  void end(TaskId task, int code = 0, TaskMeter meter = {}) {
    TaskStatus status{.task = task,
                      .state = TaskState::ended,
                      .started_at = core.state().find_task(task)->lease_from,
                      .ended_at = wall};
    status.exit.code = code;
    status.usage.meter = meter;
    must(AgentReport{core.state().find_task(task)->node, status});
  }
  template <class E>
  std::vector<E> all() const {
    std::vector<E> out;
    for (const Event& e : history)
      if (const auto* x = get_if<E>(&e.body))
        out.push_back(*x);
    return out;
  }
  void check_replay() {
    Core again(State{}, {});
    for (const Event& e : history)
      again.replay(e);
    EXPECT_EQ(image(again.state()), image(core.state()));
    const auto restored = restore(image(core.state()));
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_EQ(image(*restored), image(core.state()));
  }
  void crash() {  // from the snapshot, as after a restart
    auto restored = restore(image(core.state()));
    ASSERT_TRUE(restored);
    core = Core(std::move(*restored), prices());
  }
};

[[maybe_unused]] BudgetKey project_budget(World& w,
                                          NanoUsd limit,
                                          BudgetPeriod period = BudgetPeriod::monthly,
                                          bool stops = true) {
  const ProjectId project = w.core.state().projects.begin()->first;
  w.must(SetBudget{{BudgetScope::project, project.value, period, limit, stops, minutes(10)}, {}});
  return {BudgetScope::project, project.value, period};
}

}  // namespace
}  // namespace billow::control::money_tests
