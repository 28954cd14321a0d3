// An agent that is killed at any moment, again and again, while it starts and follows fifty tasks:
// every task runs exactly once, every exit is right, every log is whole.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "base/text.h"
#include "rig.h"

namespace billow::agent {
namespace {

constexpr unsigned tasks_count = 50;

int code_of(unsigned task) {
  return static_cast<int>(task * 7 % 200);
}

TaskSpec task_spec(const std::string& root, unsigned task) {
  // Appending one short line with O_APPEND is atomic: a second run would show.
  TaskSpec spec =
      shell(fmt::format("echo {0} >> {1}/ran; i=0; while [ $i -lt 20 ]; do echo line $i; "
                        "i=$((i+1)); done; sleep 0.0{2}; exit {3}",
                        task, root, task % 10, code_of(task)));
  spec.subscription = supervise::Subscription::live;
  return spec;
}

// One life of an agent: adopt what is there, start what is not, follow until all have ended. Never
// returns.
[[noreturn]] void live(Rig& rig) {
  std::vector<std::unique_ptr<SupervisorLink>> links;
  for (unsigned task = 1; task <= tasks_count; ++task) {
    const auto found = rig.dirs().find(TaskId(task));
    if (found && found->presence == TaskPresence::supervised) {
      if (auto link = rig.launcher().connect(rig.dirs().path(TaskId(task))))
        links.push_back(std::make_unique<SupervisorLink>(std::move(*link)));
      continue;
    }
    if (found && found->presence != TaskPresence::never_started)
      continue;
    if (found && !rig.dirs().remove(TaskId(task)))
      ::_exit(3);
    auto link = rig.start(TaskId(task), task_spec(rig.root(), task));
    if (!link)
      ::_exit(4);
    links.push_back(std::make_unique<SupervisorLink>(std::move(*link)));
  }
  Heard heard;
  for (auto& link : links)
    while (link->open()) {
      pollfd p{link->fd(), POLLIN, 0};
      ::poll(&p, 1, 1000);
      link->on_readable(heard);
    }
  for (unsigned task = 1; task <= tasks_count; ++task) {
    while (supervisor_alive(rig.dirs().path(TaskId(task))))
      ::poll(nullptr, 0, 1);
    if (!read_exit(rig.dirs().path(TaskId(task))))
      ::_exit(5);
  }
  ::_exit(0);
}

TEST(AgentChaos, FiftyTasksRunOnceUnderAnAgentKilledAtRandom) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Rig rig;
    Rng rng(seed);
    int status = -1;
    for (int life = 0; life < 200; ++life) {
      const pid_t agent = ::fork();
      ASSERT_GE(agent, 0);
      if (agent == 0)
        live(rig);
      if (life < 60) {
        ::poll(nullptr, 0, static_cast<int>(rng.below(12)));
        ::kill(agent, SIGKILL);
      }
      ::waitpid(agent, &status, 0);
      if (WIFEXITED(status))
        break;
    }
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "seed " << seed << " status " << status;
    std::map<std::string, int> runs;
    for (const auto& line : split(*read_file(rig.root() + "/ran"), '\n'))
      if (!line.empty())
        ++runs[line];
    std::string whole;
    for (int i = 0; i < 20; ++i)
      whole += fmt::format("line {}\n", i);
    for (unsigned task = 1; task <= tasks_count; ++task) {
      EXPECT_EQ(runs[std::to_string(task)], 1) << "seed " << seed << " task " << task;
      const auto exit = read_exit(rig.dirs().path(TaskId(task)));
      ASSERT_TRUE(exit) << "seed " << seed << " task " << task;
      EXPECT_EQ(exit->code, code_of(task));
      EXPECT_EQ(rig.read_log(TaskId(task)).out, whole) << "seed " << seed << " task " << task;
    }
  }
}

}  // namespace
}  // namespace billow::agent
