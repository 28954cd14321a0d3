// A core driven by hand with its two clocks: the wall clock, which anybody may set, and the clock
// of bills, which only time moves.
#pragma once

#include <gtest/gtest.h>

#include "base/crypto.h"
#include "core/control/core.h"
#include "tests/unit/control/plan_all.h"
#include "view/job_document.h"

namespace billow::view {

struct Rig {
  control::Core core{control::State{}, prices()};
  std::vector<control::FinishedJob> finished;
  std::vector<control::FinishedArray> finished_arrays;
  std::vector<control::ClosedLease> leases;
  WallTime wall{20'000ll * 86'400 * 1'000'000'000 + 3600ll * 1'000'000'000};
  WallTime billed = wall;

  static ledger::PriceBook prices() {
    ledger::PriceBook book;
    book.set("H100", PriceClass::on_demand, Rate{1'000'003});  // odd, so that rounding shows
    book.set("H100", PriceClass::spot, Rate{400'001});
    book.set(ledger::PriceBook::memory_type, PriceClass::suspended, Rate{900});
    return book;
  }
  static NodeOffer offer(std::string name, int gpus) {
    NodeOffer o;
    o.name = std::move(name);
    o.boot_id = "boot";
    for (int i = 0; i < gpus; ++i)
      o.gpus.push_back({.index = i,
                        .uuid = o.name + "-" + std::to_string(i),
                        .vendor = "nvidia",
                        .model = "NVIDIA H100",
                        .type = "H100",
                        .mem_mib = 81559,
                        .nvlink_domain = 0});
    o.cpu_milli = 16000;
    o.mem_mib = 65536;
    o.labels = {{"pool", "cloud"}};
    return o;
  }

  Rig() {
    must(StartHead{.version = "1",
                   .epoch = 1,
                   .admin = "ana",
                   .admin_token_hash = sha256_hex("bw_admin"),
                   .node_token_hash = "n"});
    must(AgentHello{offer("n1", 4), {}});
  }

  const control::State& state() const { return core.state(); }
  Moment moment() const { return {wall, billed}; }
  void take(control::Step step) {
    for (auto& j : step.jobs)
      finished.push_back(std::move(j));
    for (auto& a : step.arrays)
      finished_arrays.push_back(std::move(a));
    for (auto& l : step.leases)
      leases.push_back(std::move(l));
    const Status ok = check_invariants(core.state());
    ASSERT_TRUE(ok) << ok.error().message;
  }
  void must(const Command& command) {
    take(core.catch_up(wall, billed));
    auto step = core.execute(command, {"user:ana", "r"}, wall, billed);
    ASSERT_TRUE(step) << step.error().message;
    take(std::move(*step));
    control::plan_all(core, [&] { take(core.plan(wall, billed)); });
  }
  void pass_time(Duration d) {
    wall = wall + d;
    billed = billed + d;
  }
  SubmitJob job(int gpus = 1) const {
    SubmitJob c;
    c.spec.argv = {"python", "train.py", "--lr", "0.1"};
    c.spec.resources.gpus = gpus;
    c.spec.resources.share = {1000, 0};
    c.user = state().users.begin()->first;
    return c;
  }
  JobId submit(const SubmitJob& command) {
    const JobId id(state().next_job);
    must(command);
    return id;
  }
  JobId submit(int gpus = 1) { return submit(job(gpus)); }
  const Job& live(JobId id) const { return state().jobs.at(id); }
  TaskId task_of(JobId id) const { return live(id).tasks.front(); }
  NodeId node_of(JobId id) const { return state().tasks.at(task_of(id)).node; }
  void begin(JobId id) {
    for (const TaskId task : std::vector(live(id).tasks))
      must(AgentReport{node_of(id),
                       {.task = task, .state = TaskState::running, .started_at = wall}});
  }
  void sent(JobId id, std::int64_t bytes) {
    must(MeterMarks{node_of(id), {{task_of(id), {.measured = true, .egress_bytes = bytes}}}});
  }
  void end(JobId id, int code = 0) {
    for (const TaskId task : std::vector(live(id).tasks)) {
      TaskStatus status{
          .task = task, .state = TaskState::ended, .started_at = wall, .ended_at = wall};
      status.exit.code = code;
      must(AgentReport{state().tasks.at(task).node, status});
    }
  }
};

inline const wire::agent_v1::Heartbeat* no_readings(NodeId) {
  return nullptr;
}

}  // namespace billow::view
