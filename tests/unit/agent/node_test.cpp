// The node's own facilities: users, cgroups, devices, usage. Where this machine cannot, the test
// says so.
#include <signal.h>
#include <sys/stat.h>

#include "agent/isolate/cgroup.h"
#include "agent/isolate/sandbox.h"
#include "agent/isolate/users.h"
#include "agent/observe/proc_stats.h"
#include "agent/task/task_status.h"
#include "base/text.h"
#include "rig.h"

namespace billow::agent {
namespace {

namespace sv = supervise;

TEST(Users, RefusesRootOnBehalfOfOthers) {
  EXPECT_EQ(resolve_job_user({"root", false}).error().code, Code::forbidden);
  EXPECT_EQ(resolve_job_user({"no-such-user-here", false}).error().code, Code::not_found);
  if (::geteuid() != 0)
    return;
  EXPECT_EQ(resolve_job_user({"", false}).error().code,
            Code::forbidden);  // the agent is root; the owner is not
  const auto root = resolve_job_user({"root", true});
  ASSERT_TRUE(root);
  EXPECT_EQ(root->identity.uid, 0u);
  const auto nobody = resolve_job_user({"nobody", false});
  ASSERT_TRUE(nobody) << nobody.error().message;
  EXPECT_NE(nobody->identity.uid, 0u);
  EXPECT_FALSE(nobody->identity.groups.empty());
}

struct CgroupTest : ::testing::Test {
  Cgroups groups =
      Cgroups::detect({"/proc/self/mounts", fmt::format("billow-test-{}", ::getpid())});
  ~CgroupTest() override {
    if (auto mounts = read_file("/proc/self/mounts"))
      for (const char* mount : {"cpu", "memory", "pids", "freezer", "devices", "unified", "."})
        ::rmdir(fmt::format("/sys/fs/cgroup/{}/billow-test-{}", mount, ::getpid()).c_str());
  }
};

TEST_F(CgroupTest, SaysWhatItCanAndCannot) {
  const auto lines = groups.report();
  ASSERT_EQ(lines.size(), 4u);
  for (const auto& line : lines) {
    EXPECT_NE(line.find(": "), std::string::npos);
    RecordProperty("doctor", line);
  }
  const Cgroups nothing = Cgroups::detect({"/dev/null", "billow-test"});
  EXPECT_EQ(nothing.memory(), CgroupKind::none);
  EXPECT_NE(nothing.report()[1].find("memory limits: not available"), std::string::npos);
  const auto group = nothing.create(TaskId(1), {1000, 100, 10});
  ASSERT_TRUE(group);
  EXPECT_TRUE(group->empty());
}

TEST_F(CgroupTest, FlagsOutOfMemoryAndCleansUp) {
  if (groups.memory() == CgroupKind::none)
    GTEST_SKIP() << groups.report()[1];
  Rig rig;
  const auto group = groups.create(TaskId(1), {0, 32, 0});
  ASSERT_TRUE(group) << group.error().message;
  // 100 MB in a shell variable, under a limit of 32.
  TaskSpec spec = shell("x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo survived");
  group->apply_to(spec);
  const Heard heard = rig.run(TaskId(1), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.out, "") << heard.exit->detail;
  EXPECT_NE(heard.exit->flags & sv::exit_oom, 0u) << heard.exit->detail;
  EXPECT_GE(groups.usage(*group).oom_kills, 1u);
  EXPECT_EQ(status_of(TaskId(1), *heard.exit).exit.kind, ExitKind::oom);
  EXPECT_TRUE(Rig::pump_until([&] { return groups.remove(*group).has_value(); }));
  EXPECT_TRUE(groups.find(TaskId(1)).empty());
}

TEST_F(CgroupTest, ACountersEarlierKillsAreNotThisJobs) {
  if (groups.memory() == CgroupKind::none)
    GTEST_SKIP() << groups.report()[1];
  Rig rig;
  const auto group = groups.create(TaskId(1), {0, 32, 0});
  ASSERT_TRUE(group) << group.error().message;
  const auto kind_of_end = [&](int task, const char* script) {
    TaskSpec spec = shell(script);
    group->apply_to(spec);
    const Heard heard = rig.run(TaskId(task), spec);
    return heard.exit ? status_of(TaskId(task), *heard.exit).exit.kind : ExitKind::lost;
  };
  EXPECT_EQ(kind_of_end(1, "x=$(head -c 100000000 /dev/zero | tr '\\0' x)"), ExitKind::oom);
  EXPECT_EQ(kind_of_end(2, "exit 3"), ExitKind::exited);
  EXPECT_TRUE(Rig::pump_until([&] { return groups.remove(*group).has_value(); }));
}

// The starter of a container enters the groups as the job's user, whatever umask agents have.
TEST(Cgroups, MayBeEnteredByTheJobsUsers) {
  const std::string dir = make_temp_dir();
  ASSERT_TRUE(
      write_file_atomic(dir + "/mounts", fmt::format("cgroup2 {} cgroup2 rw 0 0\n", dir), 0600));
  const auto mode_after_detect = [&] {
    (void)Cgroups::detect({dir + "/mounts", "billow-test"});
    struct stat made {};
    EXPECT_EQ(::stat((dir + "/billow-test").c_str(), &made), 0);
    return made.st_mode & 07777;
  };
  const mode_t before = ::umask(077);
  EXPECT_EQ(mode_after_detect(), 0755u);
  ::umask(before);
  ::chmod((dir + "/billow-test").c_str(), 0700);  // as earlier versions left it
  EXPECT_EQ(mode_after_detect(), 0755u);
  std::filesystem::remove_all(dir);
}

// As in a pod: the agent may make no groups, and sees those of its container as the root.
TEST(Cgroups, TheContainersCounterServesJobsWithoutGroups) {
  const std::string dir = make_temp_dir();
  ASSERT_TRUE(write_file_atomic(dir + "/memory.events", "low 0\noom_kill 4\n", 0600));
  ASSERT_TRUE(
      write_file_atomic(dir + "/mounts", fmt::format("cgroup2 {} cgroup2 ro 0 0\n", dir), 0600));
  EXPECT_EQ(Cgroups::detect({dir + "/mounts", "billow-test"}).shared_oom_counter(), dir);
  EXPECT_EQ(Cgroups::detect({"/dev/null", "billow-test"}).shared_oom_counter(), "");
  std::filesystem::remove_all(dir);
}

// As on machines that mount no v2, whose GPUs nothing else would keep from a job that finds another
// device file of theirs.
TEST_F(CgroupTest, WithoutV2TheDeviceControllerRefusesDevices) {
  const std::string dir = make_temp_dir();
  std::string mounts;
  for (const std::string& line : split(read_file("/proc/self/mounts").value_or(""), '\n'))
    if (line.find(" cgroup2 ") == std::string::npos)
      mounts += line + "\n";
  ASSERT_TRUE(write_file_atomic(dir + "/mounts", mounts, 0600));
  const Cgroups v1 = Cgroups::detect({dir + "/mounts", fmt::format("billow-test-{}", ::getpid())});
  if (!v1.denies_devices())
    GTEST_SKIP() << "this machine has no writable device controller of v1";
  TaskCgroup group;
  const Status denied = v1.deny_devices(TaskId(3), {{1, 7}}, group);  // /dev/full
  ASSERT_TRUE(denied) << denied.error().message;
  Rig rig;
  TaskSpec spec = shell(fmt::format(
      "head -c1 /dev/full > /dev/null 2>&1 && echo opened || echo refused;"
      " mknod {0}/copy c 1 7 2> /dev/null && echo made || echo refused; head -c1 /dev/zero | wc -c",
      dir));
  group.apply_to(spec);
  const Heard heard = rig.run(TaskId(3), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.out, "refused\nrefused\n1\n") << heard.err << heard.exit->detail;
  // A hook of the job enters the groups that exist.
  EXPECT_EQ(v1.find(TaskId(3)).v1, group.v1);
  EXPECT_TRUE(Rig::pump_until([&] { return v1.remove(group).has_value(); }));
  std::filesystem::remove_all(dir);
}

TEST_F(CgroupTest, LimitsCpuAndProcesses) {
  if (groups.cpu() == CgroupKind::none || groups.pids() == CgroupKind::none || !groups.tracks())
    GTEST_SKIP() << groups.report()[0];
  Rig rig;
  const auto group = groups.create(TaskId(2), {500, 0, 8});
  ASSERT_TRUE(group) << group.error().message;
  TaskSpec spec = shell(
      "cat /proc/self/cgroup; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 30 & done; echo all");
  group->apply_to(spec);
  const Heard heard = rig.run(TaskId(2), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_NE(heard.out.find("task-2"), std::string::npos) << heard.out << heard.exit->detail;
  EXPECT_NE(heard.err.find("fork"), std::string::npos) << heard.err;
  EXPECT_TRUE(Rig::pump_until([&] { return groups.remove(*group).has_value(); }));
}

TEST_F(CgroupTest, KillsAndFreezesThroughTheGroup) {
  if (!groups.tracks())
    GTEST_SKIP() << groups.report()[3];
  Rig rig;
  const auto group = groups.create(TaskId(3), {});
  ASSERT_TRUE(group) << group.error().message;
  TaskSpec spec = shell("trap '' TERM; while :; do echo x; sleep 0.02; done");
  group->apply_to(spec);
  Heard heard;
  auto link = rig.start(TaskId(3), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out.size() > 2; }));
  EXPECT_FALSE(cgroup_pids(group->v2).empty());
  EXPECT_GT(usage_of(cgroup_pids(group->v2)).rss_bytes, 0);
  link->freeze(true);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.reached(sv::SupervisorState::frozen); }));
  EXPECT_TRUE(Rig::pump_until([&] {
    const auto events = read_file(group->v2 + "/cgroup.events");
    return events && events->find("frozen 1") != std::string::npos;
  }));
  link->stop(milliseconds(50));
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  EXPECT_EQ(heard.exit->signal, SIGKILL);
  EXPECT_TRUE(Rig::pump_until([&] { return groups.remove(*group).has_value(); }));
}

TEST(ProcStats, CountsTheTreeOfASupervisor) {
  Rig rig;
  Heard heard;
  auto link = rig.start(TaskId(1), shell("sleep 300 & sleep 300 & echo up; wait"));
  ASSERT_TRUE(link);
  ASSERT_TRUE(
      rig.until(*link, heard, [&] { return heard.out == "up\n" && !heard.statuses.empty(); }));
  const auto pids = ProcessTable::read().descendants(heard.statuses.back().supervisor_pid);
  EXPECT_EQ(pids.size(), 3u);
  const ProcessUsage usage = usage_of(pids);
  EXPECT_EQ(usage.processes, 3);
  EXPECT_EQ(usage.threads, 3);
  EXPECT_GT(usage.rss_bytes, 0);
  link->stop(seconds(5));
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
}

TEST(ProcStats, FindsWhatADeadSupervisorLeftBehind) {
  Rig rig;
  TaskSpec spec = shell("echo up; exec sleep 300");
  const std::uint64_t task = 7'000'000'000u + static_cast<std::uint64_t>(::getpid());
  const std::string mark = fmt::format("BILLOW_TASK_ID={}", task);
  spec.env.push_back(mark);
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out == "up\n"; }));
  ::kill(heard.statuses.front().supervisor_pid, SIGKILL);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(Rig::pump_until([&] { return rig.launcher().reap() == 0; }));
  const auto found = rig.dirs().find(TaskId(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->presence, TaskPresence::lost);
  EXPECT_EQ(pids_with_environment(mark).size(), 1u);
  EXPECT_EQ(kill_leftovers(mark, {}), 1u);
  EXPECT_TRUE(Rig::pump_until([&] { return pids_with_environment(mark).empty(); }));
}

TEST(SandboxPlan, HidesEveryGpuButTheGrantedOnes) {
  TaskSpec spec;
  const std::vector<DeviceNode> nodes = {{"nvidia0", 0}, {"nvidia1", 1}, {"nvidia2", 2}};
  Sandbox(SandboxKind::private_dev).apply_to(spec, nodes, {1});
  EXPECT_EQ(spec.hide_devices, (std::vector<std::string>{"nvidia0", "nvidia2"}));
  EXPECT_FALSE(spec.user_namespace);
  TaskSpec all;
  Sandbox(SandboxKind::user_namespace).apply_to(all, nodes, {0, 1, 2});
  EXPECT_TRUE(all.hide_devices.empty());
  EXPECT_FALSE(all.user_namespace);
  TaskSpec none;
  const Sandbox refused(SandboxKind::variables_only, "Operation not permitted");
  refused.apply_to(none, nodes, {1});
  EXPECT_TRUE(none.hide_devices.empty());
  EXPECT_NE(refused.report().find("CUDA_VISIBLE_DEVICES only"), std::string::npos);
}

TEST(SandboxPlan, TakesDeviceFilesOfAnyVendor) {
  const auto nodes =
      device_nodes({{"/dev/dri/renderD128"}, {"/dev/dri/renderD129", "/dev/dri/card1"}});
  ASSERT_EQ(nodes.size(), 3u);
  TaskSpec spec;
  Sandbox(SandboxKind::private_dev).apply_to(spec, nodes, {0});
  EXPECT_EQ(spec.hide_devices, (std::vector<std::string>{"dri/renderD129", "dri/card1"}));
}

TEST(SandboxPlan, DetectionFindsWhatRootMayDo) {
  const Sandbox sandbox = Sandbox::detect();
  EXPECT_FALSE(sandbox.report().empty());
  EXPECT_TRUE(file_exists("/dev/null"));  // the trial leaves the machine as it was
}

TEST(TaskStatusOf, TellsTheKindsOfEndApart) {
  sv::ExitRecord r{};
  r.kind = static_cast<std::uint32_t>(sv::ExitKind::signaled);
  r.signal = SIGTERM;
  r.cause = static_cast<std::uint32_t>(sv::EndCause::time_limit);
  EXPECT_EQ(status_of(TaskId(1), r).exit.kind, ExitKind::timed_out);
  r.cause = static_cast<std::uint32_t>(sv::EndCause::stop_request);
  EXPECT_EQ(status_of(TaskId(1), r).exit.kind, ExitKind::stopped);
  r.stop_reason = static_cast<std::uint32_t>(StopReason::unpaid);
  EXPECT_EQ(status_of(TaskId(1), r).exit.kind, ExitKind::unpaid);
  r.cause = static_cast<std::uint32_t>(sv::EndCause::itself);
  r.stop_reason = 0;
  EXPECT_EQ(status_of(TaskId(1), r).exit.kind, ExitKind::signaled);
  r.flags = sv::exit_oom;
  EXPECT_EQ(status_of(TaskId(1), r).exit.kind, ExitKind::oom);
  r.kind = static_cast<std::uint32_t>(sv::ExitKind::exited);
  r.code = 0;
  EXPECT_EQ(status_of(TaskId(1), r).exit.kind, ExitKind::exited);
  const TaskStatus stopped = [] {
    TaskStatus s;
    s.task = TaskId(2);
    s.exit = {ExitKind::stopped, 143, 0, "stopped before it began"};
    return s;
  }();
  EXPECT_EQ(status_of(TaskId(2), record_of(stopped)).exit, stopped.exit);
}

}  // namespace
}  // namespace billow::agent
