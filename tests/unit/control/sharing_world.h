// An installation with projects that share nodes, for tests.
#pragma once

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/control/core.h"
#include "core/control/residency.h"

namespace billow::control::sharing_tests {
namespace {

using wire::agent_v1::Start;

NodeOffer offer(std::string name, int gpus, std::map<std::string, std::string> labels = {}) {
  NodeOffer o;
  o.name = std::move(name);
  o.boot_id = "boot-1";
  for (int i = 0; i < gpus; ++i)
    o.gpus.push_back({.index = i,
                      .uuid = "u" + std::to_string(i),
                      .vendor = "nvidia",
                      .model = "NVIDIA H100",
                      .type = "H100",
                      .mem_mib = 81559,
                      .nvlink_domain = 0});
  o.cpu_milli = 64000;
  o.mem_mib = 262144;
  o.labels = std::move(labels);
  return o;
}

struct World {
  Core core{State{}, prices()};
  std::vector<Event> history;
  std::vector<Effect> effects;
  std::vector<FinishedJob> finished;
  std::vector<ClosedLease> leases;
  WallTime now{1'800'000'000'000'000'000};
  WallTime billed;  // the clock of the books; zero: like `now`

  static ledger::PriceBook prices() {
    ledger::PriceBook book;
    book.set("H100", PriceClass::on_demand, Rate{1'000'000});
    book.set("H100", PriceClass::spot, Rate{300'000});
    book.set("H100", PriceClass::reserved, Rate{600'000});
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
      const char* kind =
          visit([](const auto& b) { return std::decay_t<decltype(b)>::kind; }, e.body);
      const auto decoded = decode_event(e.seq, e.at, kind, encode_event(e));
      ASSERT_TRUE(decoded) << decoded.error().message;
      history.push_back(*decoded);
    }
    for (auto& e : step.effects)
      effects.push_back(std::move(e));
    for (auto& j : step.jobs)
      finished.push_back(std::move(j));
    for (auto& l : step.leases)
      leases.push_back(std::move(l));
    const Status ok = check_invariants(core.state());
    ASSERT_TRUE(ok) << ok.error().message;
  }
  Status run(const Command& command) {
    auto step = core.execute(command, {"user:ana", "r1"}, now, billed);
    if (!step)
      return pass(step.error());
    take(std::move(*step));
    for (int i = 0; i < 8; ++i)
      take(core.plan(now, billed));
    return {};
  }
  void must(const Command& command) {
    const Status s = run(command);
    ASSERT_TRUE(s) << s.error().message << " " << s.error().hint;
  }
  UserId ana() const { return core.state().users.begin()->first; }
  SubmitJob job(int gpus = 1, std::string project = {}) {
    SubmitJob submit;
    submit.spec.argv = {"python", "train.py"};
    submit.spec.resources.gpus = gpus;
    submit.spec.resources.share = {1000, 0};
    submit.user = ana();
    submit.project = std::move(project);
    return submit;
  }
  JobId submit(const SubmitJob& j) {
    const JobId id(core.state().next_job);
    must(j);
    return id;
  }
  Reserve reserve(int gpus, Duration in, Duration span, std::uint32_t nodes = 1) {
    Reserve r;
    r.user = ana();
    r.resources.gpus = gpus;
    r.resources.share = {1000, 0};
    r.nodes = nodes;
    r.from = now + in;
    r.until = now + in + span;
    return r;
  }
  void wait(Duration d) {
    now = now + d;
    must(Tick{});
  }
  JobState state(JobId id) const {
    const Job* j = core.state().find_job(id);
    return j ? j->state : JobState::succeeded;
  }
  void end(JobId id, ExitStatus exit = {}) {
    const std::vector<TaskId> tasks = core.state().find_job(id)->tasks;
    for (TaskId t : tasks) {
      const Task* task = core.state().find_task(t);
      if (!task || task->state == TaskState::ended)
        continue;
      must(AgentReport{task->node,
                       {.task = t,
                        .state = TaskState::ended,
                        .started_at = task->lease_from,
                        .ended_at = now,
                        .exit = exit}});
    }
  }
  void check_replay() {
    Core again(State{}, {});
    for (const Event& e : history)
      again.replay(e);
    EXPECT_EQ(image(again.state()), image(core.state()));
    const auto restored = restore(image(core.state()));
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_EQ(image(*restored), image(core.state()));
    const Status ok = check_invariants(*restored);
    EXPECT_TRUE(ok) << ok.error().message;
  }
};

// ---- placement

}  // namespace
}  // namespace billow::control::sharing_tests
