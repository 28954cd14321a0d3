// Builders for scheduler tests: nodes, jobs, and carrying out a plan as the core would.
#pragma once

#include <gtest/gtest.h>

#include "core/sched/plan.h"

namespace billow::sched::test {

inline constexpr WallTime t0{1'000'000'000'000'000};

inline NodeShape node(std::uint64_t id, int gpus = 8, std::string type = "H100") {
  NodeShape n{
      .id = NodeId{id}, .name = "n" + std::to_string(id), .cpu_milli = 64000, .mem_mib = 512 << 10};
  for (int i = 0; i < gpus; ++i)
    n.gpus.push_back({.type = type, .memory_mib = 80 << 10});
  return n;
}
inline JobRequest job(std::uint64_t id, int gpus = 1, int milli = 1000) {
  JobRequest j{
      .id = JobId{id}, .project = ProjectId{1}, .user = UserId{1}, .submitted = t0, .order = id};
  j.resources = {.gpus = gpus, .share = {milli, 0}, .cpu_milli = 1000, .mem_mib = 1024};
  return j;
}
inline void check(const SchedIndex& index) {
  const Status ok = index.check_invariants();
  ASSERT_TRUE(ok) << ok.error().message;
}
// Starts and repairs happen; victims leave at once and come back to the queue.
inline void carry_out(SchedIndex& index, const Plan& p, WallTime now) {
  for (const Preempt& v : p.preempts) {
    const RunningJob* running = index.running(v.victim);
    ASSERT_NE(running, nullptr);
    const JobRequest again = running->request;
    index.leaving(v.victim, v.for_job);
    index.ended(v.victim, now);
    index.enqueue(again);
  }
  for (const Start& s : p.starts)
    index.started(s.job, s.placements, now);
  for (const Repair& r : p.repairs)
    index.member_replaced(r.job, r.task_index, r.placement);
  check(index);
}

}  // namespace billow::sched::test
