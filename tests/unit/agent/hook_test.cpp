// Where hooks run: in the job's control group, mount namespace and devices, as its user, without
// new privileges, and no longer than they may.
#include "agent/isolate/hook.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "agent/isolate/cgroup.h"
#include "base/file.h"
#include "base/text.h"
#include "process/spawn.h"
#include "tests/unit/agent/rig.h"

namespace billow::agent {
namespace {

constexpr std::uint32_t nobody = 65534;

// A stand-in for a running job: a process in a mount namespace whose /dev has one of two GPUs.
class HookTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0)
      GTEST_SKIP() << "needs root";
    ready_ = *process::Pipe::create();
    process::Spawn job;
    job.body = [this] {
      if (::unshare(CLONE_NEWNS) != 0 ||
          ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("tmpfs", "/dev", "tmpfs", 0, "mode=0755,size=64k") != 0 ||
          ::mknod("/dev/null", S_IFCHR | 0666, 1 << 8 | 3) != 0 ||
          ::mknod("/dev/nvidia1", S_IFREG | 0666, 0) != 0)
        return 1;
      (void)!::write(ready_.write.get(), "x", 1);
      for (;;)
        ::pause();
    };
    job_ = *process::spawn(job);
    ready_.write.reset();
    char byte = 0;
    ASSERT_EQ(::read(ready_.read.get(), &byte, 1), 1);
    out_ = make_temp_dir();
    ASSERT_EQ(::chmod(out_.c_str(), 0777), 0);
    place_.pid = job_.pid();
    place_.env = {"PATH=/usr/bin:/bin", "OUT=" + out_, "NAME=of the job"};
    place_.identity = Identity{nobody, nobody, {nobody}};
  }
  void TearDown() override { (void)remove_tree(out_); }

  Status run(const std::string& command, Duration patience = seconds(20)) {
    return run_hook({.command = command, .place = place_, .patience = patience});
  }
  std::string result() const { return read_file(out_ + "/result").value_or("(nothing)"); }

  process::Pipe ready_;
  process::Child job_;
  std::string out_;
  JobPlace place_;
};

TEST_F(HookTest, RunsAsTheJobsUserWithoutNewPrivileges) {
  const Status ran =
      run("(id -u; id -G; grep NoNewPrivs /proc/self/status; echo $NAME) > $OUT/result");
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(result(), "65534\n65534\nNoNewPrivs:\t1\nof the job\n");
}

TEST_F(HookTest, HasNoNewPrivilegesAsTheAgentsOwnUserEither) {
  place_.identity.reset();
  ASSERT_TRUE(run("grep NoNewPrivs /proc/self/status > $OUT/result"));
  EXPECT_EQ(result(), "NoNewPrivs:\t1\n");
}

TEST_F(HookTest, SeesTheDevicesOfTheJobAlone) {
  ASSERT_TRUE(run("ls /dev > $OUT/result"));
  EXPECT_EQ(result(), "null\nnvidia1\n");
}

TEST_F(HookTest, RunsInTheJobsControlGroups) {
  const Cgroups cgroups = Cgroups::detect({.name = "billow", .owner = "hooktest"});
  auto group = cgroups.create(TaskId(77), {.mem_mib = 512, .pids_max = 100});
  if (!group || group->empty())
    GTEST_SKIP() << "this machine has no control groups to write";
  place_.cgroups = group->v1;
  if (!group->v2.empty())
    place_.cgroups.push_back(group->v2);
  ASSERT_FALSE(place_.cgroups.empty());
  const Status ran = run("cat /proc/self/cgroup > $OUT/result");
  ASSERT_TRUE(ran) << ran.error().message;
  for (const std::string& directory : place_.cgroups) {
    // ".../billow/LEAF": the path in /proc/self/cgroup is relative to the mount of the hierarchy.
    const std::string leaf = directory.substr(directory.rfind("/billow/"));
    EXPECT_NE(result().find(leaf + "\n"), std::string::npos) << directory << "\n" << result();
  }
  (void)cgroups.remove(*group);
}

TEST_F(HookTest, APipeThatEndsEarlyIsNoError) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);  // as the agent does
  const Status ran = run("yes 2> $OUT/result | head -1");
  ::sigaction(SIGPIPE, &before, nullptr);
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(result(), "");
}

TEST_F(HookTest, ItsDescendantsEndAtItsDeadline) {
  const Status ran =
      run("setsid sh -c 'echo $$ > $OUT/result; exec sleep 600' & sleep 600", milliseconds(500));
  ASSERT_FALSE(ran);
  EXPECT_NE(ran.error().message.find("took more than"), std::string::npos) << ran.error().message;
  const auto pid = parse_int(trim(result()), 2, INT32_MAX);
  ASSERT_TRUE(pid) << result();
  EXPECT_TRUE(Rig::pump_until([&] { return ::kill(static_cast<pid_t>(*pid), 0) != 0; }));
}

TEST_F(HookTest, FailsWithItsLastWords) {
  const Status ran = run("echo it is broken; exit 3");
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().message, "`echo it is broken; exit 3` exited with code 3: it is broken");
}

TEST_F(HookTest, NeverRunsOutsideTheJob) {
  (void)job_.end_and_wait();
  const Status ran = run("touch $OUT/result");
  ASSERT_FALSE(ran);
  EXPECT_NE(ran.error().message.find("was not run: the namespaces of process"), std::string::npos)
      << ran.error().message;
  place_.pid = 0;
  EXPECT_FALSE(run("touch $OUT/result"));
  place_.pid = ::getpid();
  place_.cgroups = {"/sys/fs/cgroup/no/such/group"};
  const Status grouped = run("touch $OUT/result");
  ASSERT_FALSE(grouped);
  EXPECT_NE(grouped.error().message.find("enter the control group"), std::string::npos);
  EXPECT_FALSE(file_exists(out_ + "/result"));
}

TEST_F(HookTest, AUserScriptHasNoVariablesOfTheJob) {
  const Status ran = run_user_script({.name = "looking around",
                                      .script = "(id -u; env | cut -d= -f1 | sort) > $OUT/result",
                                      .env = {"OUT=" + out_},
                                      .identity = place_.identity});
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(result(), "65534\nOUT\nPATH\nPWD\n");
}

}  // namespace
}  // namespace billow::agent
