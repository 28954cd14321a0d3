// What a child gets and does not get: descriptors, environment, signals, user, time.
#include "process/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "process/call_filter_linux.h"
#include "process/capture.h"

namespace billow::process {
namespace {

constexpr std::uint32_t nobody = 65534;

Spawn shell(const std::string& script) {
  Spawn out;
  out.argv = {"/bin/sh", "-c", script};
  out.env = {"PATH=/usr/bin:/bin"};
  return out;
}
std::string printed(const Spawn& request) {
  const auto output = capture(request, {.input = {}, .together = true});
  return output ? output->out : "failed: " + output.error().message;
}
// A request of each way of starting: posix_spawn, fork, and fork with a process that watches.
std::vector<Spawn> each_way(const std::string& script) {
  Spawn plain = shell(script), forked = shell(script), watched = shell(script);
  forked.cwd = "/";
  watched.whole_tree = true;
  return {plain, forked, watched};
}
bool alive(int pid) {
  return ::kill(pid, 0) == 0 &&
         read_file(fmt::format("/proc/{}/stat", pid)).value_or(") Z").find(") Z") ==
             std::string::npos;
}
bool gone_within(int pid, Duration patience) {
  const SteadyTime give_up = system_clock().steady() + patience;
  while (alive(pid) && system_clock().steady() < give_up)
    ::poll(nullptr, 0, 5);
  return !alive(pid);
}
#define NEEDS_ROOT()    \
  if (::geteuid() != 0) \
  GTEST_SKIP() << "needs root"

TEST(Spawn, HasExactlyTheEnvironmentItIsGiven) {
  for (Spawn request : each_way("env | sort")) {
    request.env = {"A=1", "PATH=/usr/bin:/bin"};
    const std::string text = printed(request);
    EXPECT_NE(text.find("A=1\n"), std::string::npos) << text;
    EXPECT_EQ(text.find("HOME="), std::string::npos) << text;
  }
}

TEST(Spawn, InheritsNoDescriptorsButThoseItIsGiven) {
  // Not close-on-exec, as a library might open one.
  const Fd leaked(::open("/dev/null", O_RDONLY)), low(::open("/dev/zero", O_RDONLY));
  for (Spawn request : each_way("ls /proc/self/fd | tr '\\n' ' '; readlink /proc/self/fd/7")) {
    request.fds = {{low.get(), 7}};
    EXPECT_EQ(printed(request), "0 1 2 3 7 /dev/zero\n");  // 3: ls reads the directory by it
  }
}

TEST(Spawn, DescriptorsMayTradePlaces) {
  Pipe a = *Pipe::create(), b = *Pipe::create();
  Spawn request = shell(fmt::format("echo one >&{}; echo two >&{}", b.write.get(), a.write.get()));
  request.fds = {{a.write.get(), b.write.get()}, {b.write.get(), a.write.get()}};
  ASSERT_TRUE(spawn(request)->wait().ok());
  char buffer[16] = {};
  ASSERT_GT(::read(a.read.get(), buffer, sizeof buffer), 0);
  EXPECT_STREQ(buffer, "one\n");
}

TEST(Spawn, SignalsAreNeitherIgnoredNorBlocked) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  sigset_t blocked, mask;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &mask);
  for (const Spawn& request : each_way("grep -E 'Sig(Ign|Blk)' /proc/self/status; yes | head -1")) {
    const std::string text = printed(request);
    EXPECT_NE(text.find("SigBlk:\t0000000000000000"), std::string::npos) << text;
    // glibc's posix_spawn ignores 32 and 33, which it keeps for itself and no program can use.
    EXPECT_TRUE(text.find("SigIgn:\t0000000000000000") != std::string::npos ||
                text.find("SigIgn:\t0000000180000000") != std::string::npos)
        << text;
    EXPECT_TRUE(text.ends_with("\ny\n")) << text;  // and no "Broken pipe"
  }
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::sigaction(SIGPIPE, &before, nullptr);
}

TEST(Spawn, IgnoredSignalsStaySoOnRequest) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGHUP, &ignore, &before);
  Spawn request = shell("kill -HUP $$; echo alive");
  request.signals = Signals::keep_ignored;
  EXPECT_EQ(printed(request), "alive\n");
  ::sigaction(SIGHUP, &before, nullptr);
}

TEST(Spawn, AMissingProgramIsAnErrorAndNoExitCode) {
  for (Spawn request : each_way("")) {
    request.argv = {"/no/such/program"};
    const auto child = spawn(request);
    ASSERT_FALSE(child);
    EXPECT_EQ(child.error().code, Code::not_found);
    EXPECT_EQ(child.error().message, "/no/such/program: No such file or directory");
  }
}

TEST(Spawn, SaysWhichStepFailed) {
  Spawn nowhere = shell("true");
  nowhere.cwd = "/no/such/directory";
  const auto directory = spawn(nowhere);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().message,
            "enter the directory /no/such/directory: No such file or directory");
  nowhere.cwd_or_root = true;
  EXPECT_TRUE(spawn(nowhere)->wait().ok());
  Spawn grouped = shell("true");
  grouped.cgroups = {"/no/such/group"};
  const auto group = spawn(grouped);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().message,
            "enter the control group /no/such/group: No such file or directory");
  Spawn entering = shell("true");
  entering.namespaces.pid = 1 << 30;  // no process has it
  const auto entered = spawn(entering);
  ASSERT_FALSE(entered);
  EXPECT_NE(entered.error().message.find("cannot be entered"), std::string::npos);
}

TEST(Spawn, BecomesTheUserWithItsGroupsAndWithoutPrivileges) {
  NEEDS_ROOT();
  for (Spawn request : each_way("id -u; id -g; id -G; grep NoNewPrivs /proc/self/status")) {
    request.identity = Identity{nobody, 1234, {1234, 4321}};
    EXPECT_EQ(printed(request), "65534\n1234\n1234 4321\nNoNewPrivs:\t1\n");
  }
}

TEST(Spawn, WithoutAnIdentityPrivilegesStayUnlessForbidden) {
  Spawn request = shell("grep NoNewPrivs /proc/self/status");
  EXPECT_EQ(printed(request), "NoNewPrivs:\t0\n");
  request.no_new_privs = true;
  EXPECT_EQ(printed(request), "NoNewPrivs:\t1\n");
}

TEST(Spawn, EntersTheMountNamespaceOfAnotherProcess) {
  NEEDS_ROOT();
  const std::string place =
      std::filesystem::temp_directory_path() / fmt::format("ns-{}", ::getpid());
  ASSERT_TRUE(make_directories(place));
  Pipe ready = *Pipe::create();
  Spawn other;
  other.body = [&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", place.c_str(), "tmpfs", 0, "size=64k") != 0 ||
        ::mkdir((place + "/inside").c_str(), 0755) != 0)
      return 1;
    (void)!::write(ready.write.get(), "x", 1);
    ::pause();
    return 0;
  };
  Child inside = *spawn(other);
  char byte = 0;
  ready.write.reset();
  ASSERT_EQ(::read(ready.read.get(), &byte, 1), 1);
  Spawn request = shell("ls " + place);
  EXPECT_EQ(printed(request), "");
  request.namespaces.pid = inside.pid();
  EXPECT_EQ(printed(request), "inside\n");
  inside.end();
  (void)inside.wait();
  std::filesystem::remove(place);
}

// Becomes a process of an ordinary user with a user and a mount namespace of its own, in which
// `place` has a directory.
int become_sandboxed(const std::string& place, const std::string& map, int ready) {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    return 1;
  const auto put = [](const char* path, const std::string& text) {
    const Fd fd(::open(path, O_WRONLY | O_CLOEXEC));
    return ::write(fd.get(), text.data(), text.size()) > 0;
  };
  if (!put("/proc/self/uid_map", map) || !put("/proc/self/setgroups", "deny") ||
      !put("/proc/self/gid_map", map) ||
      ::mount("tmpfs", place.c_str(), "tmpfs", 0, "size=64k") != 0 ||
      ::mkdir((place + "/inside").c_str(), 0755) != 0)
    return 2;
  (void)!::write(ready, "x", 1);
  ::pause();
  return 0;
}

TEST(Spawn, AnOrdinaryUserEntersItsOwnUserNamespaceFirst) {
  NEEDS_ROOT();
  const std::string place =
      std::filesystem::temp_directory_path() / fmt::format("user-ns-{}", ::getpid());
  ASSERT_TRUE(make_directories(place, 0755));
  ASSERT_EQ(::chown(place.c_str(), nobody, nobody), 0);
  Spawn user;
  user.identity = Identity{nobody, nobody, {}};
  user.out = user.err = inherited;
  user.body = [&] {
    ::prctl(PR_SET_DUMPABLE, 1);  // as after exec: its /proc is its own
    Pipe ready = *Pipe::create();
    Spawn sandboxed;
    sandboxed.body = [&] {
      return become_sandboxed(place, fmt::format("{0} {0} 1", nobody), ready.write.get());
    };
    Child inside = *spawn(sandboxed);
    ready.write.reset();
    char byte = 0;
    if (::read(ready.read.get(), &byte, 1) != 1)
      return 77;
    Spawn request = shell("id -u; ls " + place);
    request.namespaces.pid = inside.pid();
    const std::string text = printed(request);
    return text == "65534\ninside\n" ? 7 : 1;
  };
  const int code = spawn(user)->wait().code();
  std::filesystem::remove(place);
  if (code == 77)
    GTEST_SKIP() << "this machine does not let its users make namespaces";
  EXPECT_EQ(code, 7);
}

TEST(Spawn, TheDeadlineEndsTheProcessGroup) {
  for (Spawn request : each_way("sleep 600 & sleep 600")) {
    request.deadline = system_clock().steady() + milliseconds(100);
    Child child = *spawn(request);
    const Ended ended = child.wait();
    EXPECT_TRUE(ended.late);
    EXPECT_EQ(ended.signal(), SIGKILL);
    EXPECT_FALSE(ended.ok());
  }
}

// The server of a file system may be gone, or be a program of the job's user.
TEST(Spawn, TheDeadlineHoldsForADirectoryThatDoesNotAnswer) {
  char at[] = "/tmp/billow-silent-XXXXXX";
  ASSERT_TRUE(::mkdtemp(at));
  const Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const std::string options = fmt::format("fd={},rootmode=40000,user_id={},group_id={}",
                                          device.get(), ::getuid(), ::getgid());
  if (!device || ::mount("silent", at, "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    ::rmdir(at);
    GTEST_SKIP() << "no file system can be served here";
  }
  Spawn request = shell("exit 0");
  request.cwd = std::string(at) + "/below";
  request.no_new_privs = true;  // which takes a fork
  request.deadline = system_clock().steady() + seconds(1);
  const auto output = capture(request);
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_TRUE(output->ended.late);
  EXPECT_EQ(::umount2(at, MNT_DETACH), 0);
  ::rmdir(at);
}

TEST(Spawn, TheDeadlineEndsTheWholeTree) {
  Spawn request = shell("setsid sh -c 'setsid sleep 600 & echo $!; sleep 600' & sleep 600");
  request.whole_tree = true;
  request.deadline = system_clock().steady() + milliseconds(300);
  const auto output = capture(request);
  ASSERT_TRUE(output);
  EXPECT_TRUE(output->ended.late);
  const auto grandchild = parse_int(trim(output->out), 2, INT32_MAX);
  ASSERT_TRUE(grandchild) << output->out;
  EXPECT_TRUE(gone_within(static_cast<int>(*grandchild), seconds(5)));
}

TEST(Spawn, NothingOfAWholeTreeOutlivesItsProgram) {
  Spawn request = shell("(setsid sleep 600 > /dev/null 2>&1 & echo $!); exit 5");
  request.whole_tree = true;
  const auto output = capture(request);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->ended.code(), 5);
  const auto left = parse_int(trim(output->out), 2, INT32_MAX);
  ASSERT_TRUE(left) << output->out;
  EXPECT_TRUE(gone_within(static_cast<int>(*left), seconds(5)));
}

TEST(Spawn, ASignalThatEndedItIsToldAlsoThroughTheWatcher) {
  for (const Spawn& request : each_way("kill -USR1 $$")) {
    Child child = *spawn(request);
    const Ended ended = child.wait();
    EXPECT_EQ(ended.signal(), SIGUSR1);
    EXPECT_EQ(ended.code(), 128 + SIGUSR1);
  }
}

TEST(Spawn, AChildThatGoesOutOfScopeIsKilled) {
  int pid = 0;
  {
    const Child child = *spawn(shell("exec sleep 600"));
    pid = child.pid();
    EXPECT_TRUE(alive(pid));
  }
  EXPECT_FALSE(alive(pid));
}

TEST(Spawn, ADetachedProgramIsNobodysChild) {
  Pipe pipe = *Pipe::create();
  Spawn request = shell("echo $$; sleep 600");
  request.detached = true;
  request.out = pipe.write.get();
  EXPECT_EQ(spawn(request)->pid(), 0);
  char buffer[32] = {};
  ASSERT_GT(::read(pipe.read.get(), buffer, sizeof buffer), 0);
  const auto pid = parse_int(trim(buffer), 2, INT32_MAX);
  ASSERT_TRUE(pid);
  EXPECT_TRUE(alive(static_cast<int>(*pid)));
  ::kill(static_cast<int>(*pid), SIGKILL);
}

TEST(Spawn, ABodyRunsAsTheUser) {
  NEEDS_ROOT();
  Spawn request;
  request.body = [] {
    return ::getuid() == nobody && ::open("/root", O_RDONLY) < 0 ? 7 : 1;
  };
  request.identity = Identity{nobody, nobody, {}};
  EXPECT_EQ(spawn(request)->wait().code(), 7);
}

TEST(Capture, PassesInputAndKeepsWhatFits) {
  const std::string text(100'000, 'x');
  Spawn cat = shell("cat; echo bad >&2");
  const auto all = capture(cat, {.input = text});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->out, text);
  EXPECT_EQ(all->err, "bad\n");
  EXPECT_EQ(capture(shell("echo 123456"), {.input = {}, .bytes_max = 3})->out, "123");
  EXPECT_EQ(capture(shell("echo 123456"), {.input = {}, .bytes_max = 3, .keep_last = true})->out,
            "56\n");
  EXPECT_TRUE(capture(shell("echo 123456"), {.input = {}, .bytes_max = 3})->cut);
  EXPECT_FALSE(capture(shell("echo 123456"), {.input = {}, .bytes_max = 7})->cut);
}

// An ssh that shares its connection, for example, or the daemon of a command line tool.
TEST(Capture, DoesNotWaitForWhatWasLeftRunning) {
  Spawn request = shell("sleep 600 & echo $!; exit 3");
  request.deadline = system_clock().steady() + seconds(120);
  const auto before = system_clock().steady();
  const auto output = capture(request);
  ASSERT_TRUE(output);
  const auto left = parse_int(trim(output->out), 1, INT32_MAX);
  ASSERT_TRUE(left) << output->out;
  EXPECT_EQ(::kill(static_cast<pid_t>(*left), SIGKILL), 0) << "it may go on";
  EXPECT_EQ(output->ended.code(), 3);
  EXPECT_FALSE(output->ended.late);
  EXPECT_LT(system_clock().steady() - before, seconds(60));
}

TEST(Spawn, RefusesTheCallsThatWereNamed) {
  const auto tried = [](std::uint32_t refused_calls) {
    Spawn request;
    request.body = [] {
      return ::unshare(CLONE_NEWNS | CLONE_NEWUSER) == 0 ? 0 : errno;
    };
    request.refused_calls = refused_calls;
    auto child = spawn(request);
    EXPECT_TRUE(child);
    return child->wait().code();
  };
  EXPECT_EQ(tried(no_namespaces), EPERM);
  if (const int free = tried(0); free != 0)
    GTEST_SKIP() << "namespaces are not available here anyway: " << free;
}

}  // namespace
}  // namespace billow::process
