// The agent's hands across its own restarts: what it adopts, and what it says of a task whose
// supervisor was killed.
#include "agent/task/tasks.h"

#include <signal.h>

#include "agent/observe/proc_stats.h"
#include "rig.h"

namespace billow::agent {
namespace {

struct Life {
  net::Loop loop;
  std::vector<TaskEvent> events;
  std::unique_ptr<Tasks> tasks;
  std::vector<RecoveredTask> recovered;

  explicit Life(const std::string& data_dir) {
    ::setenv("BILLOW_SUPERVISE", BILLOW_SUPERVISE_PATH, 1);
    EXPECT_TRUE(make_directories(data_dir + "/work", 0711));
    auto made = Tasks::create(loop, {.data_dir = data_dir, .work_dir = data_dir + "/work"},
                              {.event = [this](const TaskEvent& e) { events.push_back(e); },
                               .send =
                                   [](const auto&, auto) {
                                   }});
    if (!made)
      ADD_FAILURE() << made.error().message;
    tasks = std::move(*made);
    recovered = tasks->recover();
  }
  const TaskStatus* end() const {
    for (const TaskEvent& e : events)
      if (const auto* ended = std::get_if<task_event::Ended>(&e))
        return &ended->status;
    return nullptr;
  }
  bool started() const {
    for (const TaskEvent& e : events)
      if (std::holds_alternative<task_event::Started>(e))
        return true;
    return false;
  }
};

wire::agent_v1::Start start_of(std::uint64_t id, std::string script) {
  wire::agent_v1::Start start;
  start.task = TaskId(id);
  start.argv = {"/bin/sh", "-c", std::move(script)};
  start.env["BILLOW_TASK_ID"] = std::to_string(id);
  start.unix_user = ::geteuid() == 0 ? "root" : "";
  start.use_stdin = true;
  start.stop_grace = seconds(5);
  return start;
}

TEST(Tasks, AnAdoptedTaskTakesInputWhereItStood) {
  Rig rig;
  {
    Life first(rig.root());
    first.tasks->perform(effect::StartTask{
        start_of(1, fmt::format("read a; echo $a > {}/heard; read b; exit $b", rig.root())), {}});
    first.tasks->perform(effect::InputTask{TaskId(1), false, "one\n"});
    ASSERT_TRUE(
        first.loop.run_until([&] { return file_exists(rig.root() + "/heard"); }, seconds(60)));
  }
  Life second(rig.root());
  ASSERT_EQ(second.recovered.size(), 1u);
  EXPECT_EQ(second.recovered[0].status.state, TaskState::running);
  second.tasks->perform(effect::InputTask{TaskId(1), false, "7\n"});
  ASSERT_TRUE(second.loop.run_until([&] { return second.end() != nullptr; }, seconds(60)));
  EXPECT_EQ(second.end()->exit.code, 7);
}

// The supervisor listens only after its agent has gone. Until it does, orders wait for it.
TEST(Tasks, OrdersWaitForASupervisorThatDoesNotAnswerYet) {
  for (const bool stop : {false, true}) {
    Rig rig;
    int supervisor = 0;
    {
      Life first(rig.root());
      first.tasks->perform(effect::StartTask{start_of(1, "read a; exit $a"), {}});
      ASSERT_TRUE(first.loop.run_until([&] { return first.started(); }, seconds(60)));
      const auto found = rig.dirs().find(TaskId(1));
      ASSERT_TRUE(found);
      supervisor = found->supervisor_pid;
      ::kill(supervisor, SIGSTOP);
    }
    Life second(rig.root());
    ASSERT_EQ(second.recovered.size(), 1u);
    if (stop)
      second.tasks->perform(effect::StopTask{TaskId(1), seconds(1), StopReason::request});
    else
      second.tasks->perform(effect::InputTask{TaskId(1), false, "7\n"});
    ::kill(supervisor, SIGCONT);
    ASSERT_TRUE(second.loop.run_until([&] { return second.end() != nullptr; }, seconds(60)));
    if (stop)
      EXPECT_EQ(second.end()->exit.kind, ExitKind::stopped);
    else
      EXPECT_EQ(second.end()->exit.code, 7);
  }
}

TEST(Tasks, EndsWhatAKilledSupervisorLeftBehindAndCallsItLost) {
  Rig rig;
  const std::uint64_t id = 8'000'000'000u + static_cast<std::uint64_t>(::getpid());
  Life life(rig.root());
  life.tasks->perform(effect::StartTask{start_of(id, "exec sleep 300"), {}});
  ASSERT_TRUE(life.loop.run_until([&] { return life.started(); }, seconds(60)));
  const auto found = rig.dirs().find(TaskId(id));
  ASSERT_TRUE(found);
  ::kill(found->supervisor_pid, SIGKILL);
  ASSERT_TRUE(life.loop.run_until([&] { return life.end() != nullptr; }, seconds(60)));
  EXPECT_EQ(life.end()->exit.kind, ExitKind::lost);
  EXPECT_TRUE(Rig::pump_until(
      [&] { return pids_with_environment(fmt::format("BILLOW_TASK_ID={}", id)).empty(); }));
  life.tasks->reap();
}

}  // namespace
}  // namespace billow::agent
