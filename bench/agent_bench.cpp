// What starting tasks costs: supervisors launched four at a time for /bin/true, without cgroups, in
// a tracking cgroup, and with limits for CPU and memory. CPU is that of all processes together
// (agent, supervisor, job), since a wall-clock rate says little on a busy machine. The task
// directories lie under $BILLOW_BENCH_DIR (or the current directory).
#include <benchmark/benchmark.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>

#include "agent/isolate/cgroup.h"
#include "agent/task/launcher.h"

namespace billow::agent {
namespace {

constexpr unsigned at_once = 4;

struct Running : LinkEvents {
  TaskId id;
  SupervisorLink link;
  bool closed = false;
  void on_closed() override { closed = true; }
};

double cpu_seconds() {
  double total = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    ::getrusage(static_cast<__rusage_who>(who), &used);
    total += static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
             static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  }
  return total;
}

void launch_tasks(benchmark::State& state, CgroupLimits limits, bool grouped) {
  const char* named = std::getenv("BILLOW_BENCH_DIR");
  const std::string root = (named != nullptr ? std::string(named) : std::string(".")) +
                           "/billow-bench-" + std::to_string(::getpid());
  auto dirs = TaskDirs::open(root);
  const char* program = std::getenv("BILLOW_SUPERVISE");
  auto launcher = Launcher::create(
      {program != nullptr ? program : executable_dir() + "/../bin/billow-supervise"});
  if (!dirs || !launcher)
    return state.SkipWithError((dirs ? launcher.error() : dirs.error()).message.c_str());
  const Cgroups groups = Cgroups::detect({"/proc/self/mounts", "billow-bench"});
  if (grouped && !groups.tracks())
    return state.SkipWithError("no writable cgroup v2");
  static std::uint64_t last_id = 0;
  std::vector<std::unique_ptr<Running>> running;
  const auto turn = [&] {
    std::vector<pollfd> fds;
    for (const auto& r : running)
      fds.push_back({r->link.fd(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), 1000);
    for (std::size_t i = 0; i < fds.size(); ++i)
      if (fds[i].revents != 0)
        running[i]->link.on_readable(*running[i]);
    std::erase_if(running, [&](const auto& r) {
      if (r->closed && grouped)
        (void)groups.remove(groups.find(r->id));
      return r->closed;
    });
    launcher->reap();
  };
  const double cpu_before = cpu_seconds();
  for (auto _ : state) {
    TaskSpec spec;
    spec.argv = {"/bin/true"};
    auto one = std::make_unique<Running>();
    one->id = TaskId(++last_id);
    if (grouped) {
      auto group = groups.create(one->id, limits);
      if (!group)
        return state.SkipWithError(group.error().message.c_str());
      group->apply_to(spec);
    }
    auto task = dirs->create(one->id, spec);
    if (!task)
      return state.SkipWithError(task.error().message.c_str());
    auto link = launcher->launch(std::move(*task));
    if (!link)
      return state.SkipWithError(link.error().message.c_str());
    one->link = std::move(*link);
    running.push_back(std::move(one));
    while (running.size() >= at_once)
      turn();
  }
  while (!running.empty())
    turn();
  while (launcher->unreaped() > 0) {
    launcher->reap();
    ::poll(nullptr, 0, 1);
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["cpu_us_per_task"] =
      (cpu_seconds() - cpu_before) * 1e6 / static_cast<double>(state.iterations());
  (void)remove_tree(root);
}

BENCHMARK_CAPTURE(launch_tasks, plain, CgroupLimits{}, false)->UseRealTime()->Iterations(300);
BENCHMARK_CAPTURE(launch_tasks, tracked, CgroupLimits{}, true)->UseRealTime()->Iterations(300);
BENCHMARK_CAPTURE(launch_tasks, limited, CgroupLimits{1000, 256, 0}, true)
    ->UseRealTime()
    ->Iterations(300);

}  // namespace
}  // namespace billow::agent

BENCHMARK_MAIN();
