// An agent without root: the same promises, with what an ordinary user may do.
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/isolate/cgroup.h"
#include "agent/isolate/sandbox.h"
#include "agent/isolate/users.h"
#include "rig.h"

namespace billow::agent {
namespace {

// Runs the body as nobody, in a process of its own. Its exit status, which is 0 where all went well
// and 77 for "skip".
template <class Body>
int as_nobody(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::geteuid() == 0 &&
        (::setgroups(0, nullptr) != 0 || ::setresgid(65534, 65534, 65534) != 0 ||
         ::setresuid(65534, 65534, 65534) != 0))
      ::_exit(99);
    if (::access(BILLOW_SUPERVISE_PATH, X_OK) != 0)
      ::_exit(77);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

TEST(WithoutRoot, TasksRunAndStop) {
  const int result = as_nobody([] {
    Rig rig;
    const Heard heard = rig.run(TaskId(1), shell("id -u; exit 3"));
    if (!heard.exit || heard.exit->code != 3 || heard.out != fmt::format("{}\n", ::geteuid()))
      return 1;
    Heard stopped;
    auto link = rig.start(
        TaskId(2), shell("trap '' TERM; setsid sleep 300 & echo up; while :; do sleep 0.02; done"));
    if (!link || !rig.until(*link, stopped, [&] { return stopped.out == "up\n"; }))
      return 2;
    link->stop(milliseconds(50));
    if (!rig.until(*link, stopped, [&] { return stopped.closed; }) ||
        stopped.exit->signal != SIGKILL)
      return 3;
    return 0;
  });
  if (result == 77)
    GTEST_SKIP() << "the build directory is closed to other users";
  EXPECT_EQ(result, 0);
}

TEST(WithoutRoot, CannotRunAsSomebodyElse) {
  const int result = as_nobody([] {
    const auto root = resolve_job_user({"root", true});
    if (root || root.error().code != Code::forbidden)
      return 1;
    return resolve_job_user({"", false}) ? 0 : 2;
  });
  if (result == 77)
    GTEST_SKIP() << "the build directory is closed to other users";
  EXPECT_EQ(result, 0);
}

TEST(WithoutRoot, HidesDevicesInAUserNamespaceOrSaysThatItCannot) {
  const int result = as_nobody([] {
    const Sandbox sandbox = Sandbox::detect();
    if (sandbox.kind() == SandboxKind::variables_only)
      return sandbox.report().find("not permitted") != std::string::npos ? 0 : 1;
    if (sandbox.kind() != SandboxKind::user_namespace)
      return 2;
    Rig rig;
    TaskSpec spec = shell(
        "test -e /dev/full && echo visible; echo x > /dev/null && head -c1 /dev/urandom | wc -c; "
        "id -u");
    sandbox.apply_to(spec, {{"full", 1}}, {0});
    const Heard heard = rig.run(TaskId(1), spec);
    return heard.out == fmt::format("1\n{}\n", ::geteuid()) ? 0 : 3;
  });
  if (result == 77)
    GTEST_SKIP() << "the build directory is closed to other users";
  EXPECT_EQ(result, 0);
}

TEST(WithoutRoot, VolumesAreSeenWhereTheJobWantsThemOrItIsSaidThatTheyCannot) {
  const int result = as_nobody([] {
    const Sandbox sandbox = Sandbox::detect();
    Rig rig;
    const std::string volume = rig.root() + "/volume",
                      top = fmt::format("/billow-top-{}", ::getpid()),
                      deep = rig.root() + "/new/deep";
    if (::mkdir(volume.c_str(), 0755) != 0 || !write_file_atomic(volume + "/data", "mine\n", 0644))
      return 1;
    TaskSpec spec = shell(fmt::format(
        "cat {0}/data {1}/data; echo x > {0}/made; echo x > {1}/not; id -u", top, deep));
    const Status bound = sandbox.bind_to(spec, {{volume, top, false}, {volume, deep, true}});
    if (!bound)
      return sandbox.kind() == SandboxKind::variables_only &&
                     bound.error().message.find("may not mount") != std::string::npos
                 ? 0
                 : 2;
    const Heard heard = rig.run(TaskId(1), spec);
    if (heard.out != fmt::format("mine\nmine\n{}\n", ::geteuid()))
      return 3;
    return file_exists(volume + "/made") && !file_exists(volume + "/not") && !file_exists(top) &&
                   !file_exists(rig.root() + "/new")
               ? 0
               : 4;
  });
  if (result == 77)
    GTEST_SKIP() << "the build directory is closed to other users";
  EXPECT_EQ(result, 0);
}

TEST(WithoutRoot, CgroupsSayWhatIsMissing) {
  const int result = as_nobody([] {
    const Cgroups groups = Cgroups::detect({"/proc/self/mounts", "billow-test-nobody"});
    for (const std::string& line : groups.report())
      if (line.find("cgroup v") == std::string::npos &&
          line.find("not available") == std::string::npos &&
          line.find("by parent process") == std::string::npos)
        return 1;
    const auto group = groups.create(TaskId(1), {1000, 64, 10});
    return group ? 0 : 2;
  });
  if (result == 77)
    GTEST_SKIP() << "the build directory is closed to other users";
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace billow::agent
