// The agent's hands across its own restarts: what it adopts, and what it says of a task whose
// supervisor was killed.
#include "agent/task/tasks.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "agent/observe/proc_stats.h"
#include "base/text.h"
#include "rig.h"

namespace billow::agent {
namespace {

struct Life {
  net::Loop loop;
  std::vector<TaskEvent> events;
  std::vector<TaskId> files_done;  // whose files may be removed
  std::unique_ptr<Tasks> tasks;
  std::vector<RecoveredTask> recovered;

  explicit Life(const std::string& data_dir,
                NodeRules rules = {.private_tmp = false, .metadata_closed = {}, .disk_bytes = {}},
                std::vector<GpuInfo> gpus = {}) {
    ::setenv("BILLOW_SUPERVISE", BILLOW_SUPERVISE_PATH, 1);
    EXPECT_TRUE(make_directories(data_dir + "/work", 0711));
    auto made = Tasks::create(loop,
                              {.data_dir = data_dir,
                               .gpus = std::move(gpus),
                               .work_dir = data_dir + "/work",
                               .rules =
                                   [rules] {
                                     return Result<NodeRules>(rules);
                                   }},
                              {.event = [this](const TaskEvent& e) { events.push_back(e); },
                               .send = [](const auto&, auto) {},
                               .files_done =
                                   [this](TaskId task) {
                                     files_done.push_back(task);
                                   }});
    if (!made)
      ADD_FAILURE() << made.error().message;
    tasks = std::move(*made);
    auto found = tasks->recover();
    EXPECT_TRUE(found) << found.error().message;
    recovered = found.value_or(std::vector<RecoveredTask>());
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

// What a head that lies orders: the whole node for a job that was granted none of its GPUs.
TEST(Tasks, ANodeThatMustCloseDevicesRunsNoJobThatCouldOpenThem) {
  GpuInfo gpu;
  gpu.device_files = {"/dev/full"};
  const auto end_of = [&](bool bare, bool closed) {
    Rig rig;
    Life life(rig.root(), {.private_tmp = false, .metadata_closed = {}, .devices_closed = closed},
              {gpu});
    wire::agent_v1::Start start = start_of(1, "head -c1 /dev/full > /dev/null 2>&1");
    start.bare = bare;
    life.tasks->perform(effect::StartTask{start, {}});
    EXPECT_TRUE(life.loop.run_until([&] { return life.end() != nullptr; }, seconds(60)));
    return life.end() ? life.end()->exit : ExitStatus{};
  };
  EXPECT_EQ(end_of(true, false).code, 0) << "it has the node's own /dev";
  const ExitStatus whole = end_of(true, true);
  EXPECT_EQ(whole.kind, ExitKind::exec_failed);
  EXPECT_NE(whole.message.find("as its policy demands"), std::string::npos) << whole.message;
  const ExitStatus other = end_of(false, true);
  EXPECT_NE(other.code, 0) << "refused, or the kernel keeps it from the device";
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
  EXPECT_EQ(life.files_done, std::vector{TaskId(id)});
  EXPECT_TRUE(Rig::pump_until(
      [&] { return pids_with_environment(fmt::format("BILLOW_TASK_ID={}", id)).empty(); }));
  life.tasks->reap();
}

wire::agent_v1::Start bad_start_of(std::uint64_t id) {
  wire::agent_v1::Start start = start_of(id, "exit 0");
  start.gpus = {{.gpu = 7}};  // this node has none
  return start;
}

double cpu_seconds_of_this_thread() {
  rusage use{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &use), 0);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

// The loop sends the heartbeats. Measured as work, not as time: the machine may be busy.
TEST(Tasks, TheLoopDoesNotRemoveWhatAJobLeft) {
  constexpr int files = 100'000;
  Rig rig;
  Life life(rig.root());
  auto start = start_of(1, fmt::format("echo $key_FILE > {}/where; read a", rig.root()));
  start.surroundings.secrets = {{.name = "key", .variable = "", .file = "/run/secrets/key"}};
  start.secrets = {{.variable = "", .file = "/run/secrets/key", .value = "eA=="}};
  life.tasks->perform(effect::StartTask{start, {}});
  std::string file;
  ASSERT_TRUE(life.loop.run_until(
      [&] {
        file = trim(read_file(rig.root() + "/where", 4096).value_or(""));
        return !file.empty();
      },
      seconds(60)));
  const std::string directory = file.substr(0, file.rfind('/'));
  double before = cpu_seconds_of_this_thread();
  for (int i = 0; i < files; ++i)
    ASSERT_TRUE(Fd(::open(fmt::format("{}/{}", directory, i).c_str(), O_CREAT | O_WRONLY, 0600)));
  const double made = cpu_seconds_of_this_thread() - before;
  before = cpu_seconds_of_this_thread();
  life.tasks->perform(effect::InputTask{TaskId(1), false, "end\n"});
  ASSERT_TRUE(life.loop.run_until([&] { return life.end() != nullptr; }, seconds(60)));
  EXPECT_LT(cpu_seconds_of_this_thread() - before, made / 10);
  EXPECT_FALSE(file_exists(directory));
  ASSERT_TRUE(life.loop.run_until([&] { return life.tasks->live() == 0; }, seconds(60)));
  life.tasks->leave();
  const std::string place = directory.substr(0, directory.rfind('/'));
  EXPECT_FALSE(file_exists(place)) << "nothing is left when the agent ends";
}

TEST(Tasks, AStartThatFailsLeavesNoFiles) {
  Rig rig;
  Life life(rig.root());
  life.tasks->perform(effect::StartTask{bad_start_of(1), {}});
  ASSERT_NE(life.end(), nullptr);
  EXPECT_EQ(life.end()->exit.code, 126);
  EXPECT_EQ(life.files_done, std::vector{TaskId(1)});
}

TEST(Tasks, AStartThatCrossesARunningTaskLeavesItsFilesAlone) {
  Rig rig;
  {
    Life first(rig.root());
    first.tasks->perform(effect::StartTask{start_of(1, "read a"), {}});
    ASSERT_TRUE(first.loop.run_until([&] { return first.started(); }, seconds(60)));
    first.tasks->perform(effect::StartTask{bad_start_of(1), {}});
    EXPECT_TRUE(first.files_done.empty());
  }
  Life second(rig.root());
  second.tasks->perform(effect::StartTask{bad_start_of(1), {}});
  EXPECT_TRUE(second.files_done.empty());
}

// How a job ends on a node that has no v2 control groups, so nothing keeps it from the metadata
// service: "" if it ran.
std::string end_without_v2(const std::string& data_dir, bool closed) {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return "no mount namespace";
  for (const std::string& line : split(read_file("/proc/self/mounts").value_or(""), '\n'))
    if (const auto words = split(line, ' '); words.size() > 2 && words[2] == "cgroup2")
      ::umount2(words[1].c_str(), MNT_DETACH);
  NodeRules rules;
  rules.metadata_closed = closed;
  Life life(data_dir, rules);
  life.tasks->perform(effect::StartTask{start_of(1, "exit 0"), {}});
  if (!life.loop.run_until([&] { return life.end() != nullptr; }, seconds(60)))
    return "it did not end";
  const ExitStatus& exit = life.end()->exit;
  return exit.kind == ExitKind::exited && exit.code == 0 ? "" : exit.message;
}

TEST(Tasks, NoJobRunsThatCouldReachTheMetadataServiceWhereTheOwnerClosedIt) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root for a mount namespace";
  for (const bool closed : {false, true}) {
    Rig rig;
    int words[2];
    ASSERT_EQ(::pipe(words), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string said = end_without_v2(rig.root(), closed);
      (void)!::write(words[1], said.data(), said.size());
      ::_exit(0);
    }
    ::close(words[1]);
    std::string said(4096, '\0');
    said.resize(
        static_cast<std::size_t>(std::max<ssize_t>(0, ::read(words[0], said.data(), 4096))));
    ::close(words[0]);
    ::waitpid(child, nullptr, 0);
    if (!closed)
      EXPECT_EQ(said, "");
    else
      EXPECT_NE(said.find("cannot keep jobs from the cloud's metadata service"), std::string::npos)
          << said;
  }
}

}  // namespace
}  // namespace billow::agent
