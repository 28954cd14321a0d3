// How fast the scheduler decides, and how its cost grows with nodes and queue. A plain program: it
// prints a table (and, with
// --json, one object per line), because what counts are percentiles of single decisions, not means.
#include <time.h>
#include <algorithm>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>

#include <fmt/format.h>

#include "base/json.h"
#include "base/rng.h"
#include "core/sched/plan.h"

namespace {
using namespace billow;
using namespace billow::sched;
// Processor time of this thread: what a decision costs, whoever else uses the machine.
struct CpuClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<CpuClock>;
  static constexpr bool is_steady = true;
  static time_point now() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return time_point(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
  }
};

double seconds_since(CpuClock::time_point t) {
  return std::chrono::duration<double>(CpuClock::now() - t).count();
}
constexpr WallTime t0{1'000'000'000'000'000};

std::int64_t resident_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:"))
      return std::stoll(line.substr(6)) / 1024;
  }
  return 0;
}

void add_nodes(SchedIndex& index, int nodes) {
  for (int i = 1; i <= nodes; ++i) {
    NodeShape n{.id = NodeId{static_cast<std::uint64_t>(i)},
                .name = "n" + std::to_string(i),
                .cpu_milli = 128000,
                .mem_mib = 1 << 20};
    n.gpus.assign(8, {.type = i % 3 ? "H100" : "A100", .memory_mib = 80 << 10});
    n.place = {.region = "r",
               .zone = "z" + std::to_string(i % 4),
               .rack = "k" + std::to_string(i / 16),
               .switch_name = "s" + std::to_string(i / 32)};
    index.upsert_node(n);
  }
}
JobRequest random_job(Rng& rng, std::uint64_t id) {
  static constexpr int parts[] = {200, 250, 320, 470, 500, 650, 810, 1000, 1000, 1000};
  JobRequest j{.id = JobId{id},
               .project = ProjectId{1 + rng.below(20)},
               .user = UserId{1 + rng.below(50)},
               .submitted = t0,
               .order = id};
  j.resources = {.gpus = 1,
                 .share = {parts[rng.below(10)], 0},
                 .cpu_milli = 1000 * rng.between(2, 12),
                 .mem_mib = 8192};
  if (rng.chance(0.15)) {
    j.resources.gpus = 1 << rng.between(1, 3);
    j.resources.share.milli = 1000;
  }
  if (rng.chance(0.2))
    j.resources.gpu_types = {"H100"};
  return j;
}

struct Timing {
  double per_s = 0, p50_us = 0, p99_us = 0;
};
Timing summarise(std::vector<double> s) {
  double sum = 0;
  for (double x : s)
    sum += x;
  std::ranges::sort(s);
  return {static_cast<double>(s.size()) / sum, s[s.size() / 2] * 1e6,
          s[static_cast<std::size_t>(static_cast<double>(s.size() - 1) * 0.99)] * 1e6};
}

bool json = false;
void report(const std::string& name, const std::vector<std::pair<std::string, double>>& values) {
  if (json) {
    Json j = Json::object();
    j.set("bench", name);
    for (const auto& [k, v] : values)
      j.set(k, v);
    fmt::print("{}\n", j.dump());
  } else {
    fmt::print("{:<44}", name);
    for (const auto& [k, v] : values)
      fmt::print("  {} {:.4g}", k, v);
    fmt::print("\n");
  }
  std::fflush(stdout);
}

std::uint64_t fill(SchedIndex& index, Rng& rng, int jobs) {
  std::uint64_t id = 0;
  for (int i = 0; i < jobs; ++i)
    index.enqueue(random_job(rng, ++id));
  for (;;) {
    const Plan p = plan(index, t0);
    for (const Start& s : p.starts)
      index.started(s.job, s.placements, t0);
    if (p.starts.empty())
      break;
  }
  return id;
}

// Each decision: a job arrives, is planned, starts, and an older one ends, so that the cluster
// stays as full as it is. A decision is the plan; `with_bookkeeping` counts the four changes of the
// index around it too.
void decisions(int nodes, int running, int count) {
  SchedIndex index;
  Rng rng(1);
  add_nodes(index, nodes);
  std::uint64_t id = fill(index, rng, running);
  std::vector<double> times, whole;
  std::uint64_t oldest = 1;
  for (int i = 0; i < count; ++i) {
    const JobRequest job = random_job(rng, ++id);
    const auto arrives = CpuClock::now();
    index.enqueue(job);
    const auto begin = CpuClock::now();
    const Plan p = plan(index, t0);
    times.push_back(seconds_since(begin));
    for (const Start& s : p.starts)
      index.started(s.job, s.placements, t0);
    while (!index.running(JobId{oldest}))
      ++oldest;
    index.ended(JobId{oldest++}, t0);
    whole.push_back(seconds_since(arrives));
  }
  const Timing t = summarise(times), w = summarise(whole);
  report(fmt::format("one job at a time, {} nodes, {} running", nodes, running),
         {{"decisions_per_s", t.per_s},
          {"p50_us", t.p50_us},
          {"p99_us", t.p99_us},
          {"with_bookkeeping_per_s", w.per_s},
          {"with_bookkeeping_p99_us", w.p99_us}});
}

void batches(int nodes, int running, int count) {
  SchedIndex index;
  Rng rng(2);
  add_nodes(index, nodes);
  std::uint64_t id = fill(index, rng, running);
  double spent = 0;
  int started = 0;
  std::uint64_t oldest = 1;
  while (started < count) {
    for (int i = 0; i < 256; ++i)
      index.enqueue(random_job(rng, ++id));
    const auto begin = CpuClock::now();
    const Plan p = plan(index, t0);
    spent += seconds_since(begin);
    for (const Start& s : p.starts)
      index.started(s.job, s.placements, t0);
    started += static_cast<int>(p.starts.size());
    for (std::size_t i = 0; i < p.starts.size(); ++i) {
      while (!index.running(JobId{oldest}))
        ++oldest;
      index.ended(JobId{oldest++}, t0);
    }
  }
  report(fmt::format("256 jobs at a time, {} nodes, {} running", nodes, running),
         {{"decisions_per_s", started / spent}});
}

void gangs(int nodes) {
  SchedIndex index;
  Rng rng(3);
  add_nodes(index, nodes);
  std::uint64_t id = fill(index, rng, nodes / 4);
  std::vector<double> times;
  for (int i = 0; i < 200; ++i) {
    JobRequest gang = random_job(rng, ++id);
    gang.resources = {.gpus = 8, .share = {1000, 0}, .cpu_milli = 32000, .mem_mib = 65536};
    gang.tasks = 64;
    index.enqueue(gang);
    const auto begin = CpuClock::now();
    const Plan p = plan(index, t0);
    times.push_back(seconds_since(begin));
    if (p.starts.empty()) {
      index.dequeue(gang.id);
      continue;
    }
    index.started(gang.id, p.starts[0].placements, t0);
    index.ended(gang.id, t0);
  }
  const Timing t = summarise(times);
  report(fmt::format("gang of 64 nodes by topology, {} nodes", nodes),
         {{"p50_us", t.p50_us}, {"p99_us", t.p99_us}});
}

void queue_pass(int nodes, int queued) {
  SchedIndex index;
  Rng rng(4);
  add_nodes(index, nodes);
  for (int i = 1; i <= queued; ++i)
    index.enqueue(random_job(rng, static_cast<std::uint64_t>(i)));
  int started = 0;
  double spent = 0;
  // Everything that fits is started first; the full pass over the waiting rest is what is measured
  // last.
  for (;;) {
    const auto one = CpuClock::now();
    const Plan p = plan(index, t0, {.starts_max = 1 << 20, .tries_max = 1 << 20});
    spent += seconds_since(one);
    for (const Start& s : p.starts)
      index.started(s.job, s.placements, t0);
    started += static_cast<int>(p.starts.size());
    if (p.starts.empty())
      break;
  }
  if (started > 0)
    index.ended(JobId{1}, t0);
  index.enqueue(random_job(rng, static_cast<std::uint64_t>(queued) + 1));
  auto begin = CpuClock::now();
  const Plan again = plan(index, t0 + seconds(60), {.starts_max = 1 << 20, .tries_max = 1 << 20});
  const double pass = seconds_since(begin);
  for (const Start& s : again.starts)
    index.started(s.job, s.placements, t0);
  plan(index, t0 + seconds(60));
  begin = CpuClock::now();
  plan(index, t0 + seconds(60));
  report(fmt::format("{} nodes, {} queued", nodes, queued),
         {{"started", started},
          {"starts_per_s", started / spent},
          {"full_pass_ms", pass * 1e3},
          {"nothing_changed_us", seconds_since(begin) * 1e6},
          {"rss_mib", static_cast<double>(resident_mib())}});
}

void reclaim(int victims) {
  SchedIndex index;
  const int nodes = (victims + 7) / 8;
  add_nodes(index, nodes);
  index.upsert_project({.id = ProjectId{2}, .guaranteed_milli = std::int64_t{8000} * nodes});
  for (int i = 1; i <= nodes * 8; ++i) {
    JobRequest j{.id = JobId{static_cast<std::uint64_t>(i)},
                 .project = ProjectId{1},
                 .user = UserId{1},
                 .submitted = t0,
                 .order = static_cast<std::uint64_t>(i)};
    j.resources = {.gpus = 1, .share = {1000, 0}, .cpu_milli = 1000, .mem_mib = 1024};
    j.yields = Yields::by_suspend;
    index.enqueue(j);
  }
  for (;;) {
    const Plan p = plan(index, t0);
    if (p.starts.empty())
      break;
    for (const Start& s : p.starts)
      index.started(s.job, s.placements, t0);
  }
  JobRequest gang{.id = JobId{1'000'000},
                  .project = ProjectId{2},
                  .user = UserId{2},
                  .submitted = t0,
                  .order = 1'000'000};
  gang.resources = {.gpus = 8, .share = {1000, 0}, .cpu_milli = 8000, .mem_mib = 8192};
  gang.tasks = nodes;
  index.enqueue(gang);
  const auto begin = CpuClock::now();
  const Plan p = plan(index, t0 + hours(1));
  report(fmt::format("reclaim, {} victims", p.preempts.size()),
         {{"ms", seconds_since(begin) * 1e3}});
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  std::string_view only;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    json |= arg == "--json";
    quick |= arg == "--quick";
    if (arg == "--only" && i + 1 < argc)
      only = argv[++i];
  }
  const auto wanted = [&](std::string_view name) {
    return only.empty() || only == name;
  };
  if (wanted("decisions")) {
    for (int nodes : {5000, 500, 50})
      decisions(nodes, nodes, quick ? 2000 : 20000);
  }
  if (wanted("batches"))
    batches(5000, 5000, quick ? 2000 : 20000);
  if (wanted("gangs"))
    gangs(5000);
  if (wanted("reclaim"))
    reclaim(704);
  if (!wanted("growth"))
    return 0;
  for (int nodes : {100, 1000, 10000}) {
    for (int queued : {1000, 100'000, 1'000'000}) {
      if (quick && queued > 100'000)
        continue;
      queue_pass(nodes, queued);
    }
  }
}
