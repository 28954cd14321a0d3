// The supervisor's contract, with real processes.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/isolate/sandbox.h"
#include "base/file.h"
#include "base/text.h"
#include "rig.h"

namespace billow::agent {
namespace {

using namespace supervise;

bool alive(int pid) {
  if (::kill(pid, 0) != 0)
    return false;
  auto stat = read_file(fmt::format("/proc/{}/stat", pid));
  return stat && stat->find(") Z ") == std::string::npos;
}
int number_in(const std::string& text) {
  return std::atoi(text.c_str());
}

TEST(Supervisor, RecordsExitCodesAndOutput) {
  Rig rig;
  for (int code : {0, 1, 3, 77, 255}) {
    const Heard heard = rig.run(TaskId(100u + static_cast<unsigned>(code)),
                                shell(fmt::format("echo out; echo err >&2; exit {}", code)));
    ASSERT_TRUE(heard.exit);
    EXPECT_EQ(heard.exit->kind, static_cast<std::uint32_t>(supervise::ExitKind::exited));
    EXPECT_EQ(heard.exit->code, code);
    EXPECT_EQ(heard.out, "out\n");
    EXPECT_EQ(heard.err, "err\n");
    EXPECT_FALSE(heard.live_gap);
    EXPECT_GT(heard.exit->ended_boot_ns, heard.exit->started_boot_ns);
    EXPECT_GT(heard.exit->rss_max_kib, 0);
    // It tells the end before it is gone itself; what its directory says counts from then on.
    auto found = rig.dirs().find(TaskId(100u + static_cast<unsigned>(code)));
    for (int tries = 0; found && found->presence == TaskPresence::supervised && tries < 2000;
         ++tries) {
      ::usleep(5000);
      found = rig.dirs().find(TaskId(100u + static_cast<unsigned>(code)));
    }
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->exit);
    EXPECT_EQ(rig.read_log(TaskId(100u + static_cast<unsigned>(code))).out, "out\n");
  }
}

TEST(Supervisor, RecordsSignals) {
  Rig rig;
  for (int number : {SIGKILL, SIGSEGV, SIGUSR1}) {
    const Heard heard =
        rig.run(TaskId(static_cast<unsigned>(number)), shell(fmt::format("kill -{} $$", number)));
    ASSERT_TRUE(heard.exit);
    EXPECT_EQ(heard.exit->kind, static_cast<std::uint32_t>(supervise::ExitKind::signaled));
    EXPECT_EQ(heard.exit->signal, number);
    EXPECT_EQ(heard.exit->code, 128 + number);
  }
}

TEST(Supervisor, SaysWhyAProgramCouldNotStart) {
  Rig rig;
  TaskSpec spec = shell("");
  spec.argv = {"no-such-program-here", "x"};
  Heard heard = rig.run(TaskId(1), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->kind, static_cast<std::uint32_t>(supervise::ExitKind::not_started));
  EXPECT_EQ(heard.exit->code, 127);
  EXPECT_STREQ(heard.exit->detail, "exec no-such-program-here: No such file or directory");

  spec.argv = {"/etc/passwd"};
  heard = rig.run(TaskId(2), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->code, 126);
  EXPECT_STREQ(heard.exit->detail, "exec /etc/passwd: Permission denied");

  spec = shell("true");
  spec.cwd = "/no/such/place";
  heard = rig.run(TaskId(3), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_STREQ(heard.exit->detail,
               "enter the working directory /no/such/place: No such file or directory");
}

TEST(Supervisor, SearchesTheJobsOwnPathAndRunsScriptsWithoutAnInterpreterLine) {
  Rig rig;
  ASSERT_TRUE(write_file_atomic(rig.root() + "/my-script", "echo \"script $1 $2\"\n", 0755));
  TaskSpec spec = shell("");
  spec.argv = {"my-script", "a b", "c"};
  spec.env = {"PATH=/no/where:" + rig.root()};
  EXPECT_EQ(rig.run(TaskId(1), spec).out, "script a b c\n");
}

TEST(Supervisor, GivesTheJobExactlyItsEnvironmentDirectoryAndMask) {
  Rig rig;
  TaskSpec spec = shell("/usr/bin/env | sort; pwd; umask");
  spec.env = {"A=1", "B=two words", "PATH=/usr/bin:/bin"};
  spec.cwd = rig.root();
  spec.umask = 027;
  EXPECT_EQ(rig.run(TaskId(1), spec).out, "A=1\nB=two words\nPATH=/usr/bin:/bin\nPWD=" +
                                              rig.root() + "\n" + rig.root() + "\n0027\n");
}

TEST(Supervisor, LeavesNoDescriptorOfItsOwnToTheJob) {
  Rig rig;
  EXPECT_EQ(rig.run(TaskId(1), shell("cd /proc/self/fd && echo *")).out,
            "0 1 2 3\n");  // 3: the shell's own reading of the directory
}

TEST(Supervisor, KillsDaemonsThatForkedTwiceAndChangedSession) {
  Rig rig;
  TaskSpec spec = shell(
      "setsid sh -c 'trap \"\" TERM HUP; sleep 300 & echo $! > daemon; wait' >/dev/null 2>&1 & "
      "while [ ! -s daemon ]; do sleep 0.01; done; exit 5");
  spec.cwd = rig.root();
  const Heard heard = rig.run(TaskId(1), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->code, 5);
  const auto pid = read_file(rig.root() + "/daemon");
  ASSERT_TRUE(pid);
  EXPECT_FALSE(alive(number_in(*pid)));
}

TEST(Supervisor, ABackgroundProcessHoldingThePipeDoesNotHangTheEnd) {
  Rig rig;
  const Heard heard = rig.run(TaskId(1), shell("trap '' TERM; sleep 300 & echo done"));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.out, "done\n");
}

TEST(Supervisor, StopsByTermFirst) {
  Rig rig;
  Heard heard;
  auto link = rig.start(
      TaskId(1), shell("trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done"));
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out == "up\n"; }));
  link->stop(seconds(30), 42);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->code, 9);
  EXPECT_EQ(heard.out, "up\nbye\n");
  EXPECT_EQ(heard.exit->cause, static_cast<std::uint32_t>(EndCause::stop_request));
  EXPECT_EQ(heard.exit->stop_reason, 42u);
  EXPECT_EQ(heard.exit->flags & exit_escalated, 0u);
}

TEST(Supervisor, EscalatesToKillForTheWholeTree) {
  Rig rig;
  Heard heard;
  TaskSpec spec = shell(
      "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $! ; while "
      ":; do sleep 0.05; done");
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out.ends_with('\n'); }));
  link->stop(milliseconds(100));
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->signal, SIGKILL);
  EXPECT_NE(heard.exit->flags & exit_escalated, 0u);
  EXPECT_FALSE(alive(number_in(heard.out)));
}

TEST(Supervisor, EnforcesTheTimeLimitItself) {
  Rig rig;
  TaskSpec spec = shell("sleep 300");
  spec.time_limit = milliseconds(100);
  const Heard heard = rig.run(TaskId(1), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->cause, static_cast<std::uint32_t>(EndCause::time_limit));
  EXPECT_EQ(heard.exit->signal, SIGTERM);
}

TEST(Supervisor, EnforcesPaidUntilWhichMayBeMoved) {
  Rig rig;
  TaskSpec spec = shell("sleep 300");
  spec.paid_until = system_clock().steady() + hours(1);
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.reached(SupervisorState::running); }));
  EXPECT_EQ(heard.statuses.back().paid_until_boot_ns, spec.paid_until.ns);
  link->set_deadline(DeadlineKind::paid_until, system_clock().steady() + milliseconds(20));
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->cause, static_cast<std::uint32_t>(EndCause::paid_until));
}

TEST(Supervisor, PassesStdinAndItsEnd) {
  Rig rig;
  TaskSpec spec = shell("cat; echo END");
  spec.stdin_open = true;
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  link->send_stdin(0, "hello ");
  link->send_stdin(0, "hello ");      // sent again by an agent that was not sure: taken once
  link->send_stdin(3, "lo world\n");  // overlaps
  link->send_stdin_eof(12);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  EXPECT_EQ(heard.out, "hello world\nEND\n");
}

TEST(Supervisor, StdinOfMoreThanTheWindowArrivesWholeWhenAcknowledged) {
  Rig rig;
  TaskSpec spec = shell("cksum");
  spec.stdin_open = true;
  std::string data;
  for (int i = 0; data.size() < 3 * stdin_window_bytes; ++i)
    data += fmt::format("{:07}\n", i);
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  std::uint64_t sent = 0;
  while (sent < data.size()) {
    const std::uint64_t window = heard.ack.consumed + stdin_window_bytes;
    const std::uint64_t part = std::min<std::uint64_t>(data.size(), window) - sent;
    link->send_stdin(sent, std::string_view(data).substr(sent, part));
    sent += part;
    ASSERT_TRUE(rig.until(*link, heard, [&] {
      return heard.ack.consumed + stdin_window_bytes > sent || heard.closed;
    }));
    ASSERT_FALSE(heard.closed);
  }
  link->send_stdin_eof(data.size());
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  EXPECT_NE(heard.out.find(fmt::format(" {}\n", data.size())), std::string::npos) << heard.out;
}

TEST(Supervisor, TerminalEchoesResizesAndInterrupts) {
  Rig rig;
  TaskSpec spec = shell(
      "trap 'echo INT; exit 7' INT; stty size; read line; echo \"got $line\"; stty size; echo "
      "ready; while :; do sleep 0.05; done");
  spec.terminal = TerminalSize{30, 100};
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] {
    return heard.out.find("30 100") != std::string::npos;
  })) << heard.out;
  link->resize({50, 132});
  link->send_stdin(stdin_append, "abc\n");
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out.find("ready") != std::string::npos; }))
      << heard.out;
  EXPECT_NE(heard.out.find("abc\r\n"), std::string::npos);
  EXPECT_NE(heard.out.find("got abc"), std::string::npos);
  EXPECT_NE(heard.out.find("50 132"), std::string::npos);
  // An agent that came back gets what the terminal showed last, and the next one beside it as well.
  *link = SupervisorLink();
  auto first_again = rig.launcher().connect(rig.dirs().path(TaskId(1)));
  ASSERT_TRUE(first_again) << first_again.error().message;
  *link = std::move(*first_again);
  link->subscribe(Subscription::live);
  auto second = rig.launcher().connect(rig.dirs().path(TaskId(1)));
  ASSERT_TRUE(second) << second.error().message;
  Heard other;
  second->subscribe(Subscription::live, true);
  ASSERT_TRUE(rig.until(*second, other, [&] { return !other.replay.empty(); }));
  EXPECT_EQ(other.replay, heard.out);
  second->send_stdin(stdin_append, "\x03");
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->code, 7);
  EXPECT_NE(heard.out.find("INT"), std::string::npos);
}

TEST(Supervisor, StoppingAnInteractiveShellNeedsNoKill) {
  if (!file_exists("/bin/bash"))
    GTEST_SKIP() << "no bash here";
  Rig rig;
  TaskSpec spec = shell("");
  spec.argv = {"/bin/bash", "--norc", "-i"};
  spec.terminal = TerminalSize{};
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  link->send_stdin(stdin_append, "echo $((40+2))\n");
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out.find("42") != std::string::npos; }));
  link->stop(seconds(60));
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->flags & exit_escalated, 0u);
}

TEST(Supervisor, AShellThatMissedTheHangUpGetsAnother) {
  Rig rig;
  TaskSpec spec = shell(
      "trap '' TERM; trap 'echo hung up; n=$((n+1)); [ $n = 1 ] || exit 3' HUP; echo ready;"
      "while :; do sleep 0.02; done");
  spec.terminal = TerminalSize{};
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(
      rig.until(*link, heard, [&] { return heard.out.find("ready") != std::string::npos; }));
  link->stop(seconds(60));
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->code, 3);
  EXPECT_EQ(heard.exit->flags & exit_escalated, 0u);
}

TEST(Supervisor, FreezesAndThaws) {
  Rig rig;
  TaskSpec spec = shell("while :; do echo x; sleep 0.01; done");
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out.size() > 4; }));
  link->freeze(true);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.reached(SupervisorState::frozen); }));
  const int job = heard.statuses.back().job_pid;
  EXPECT_TRUE(Rig::pump_until([&] {
    const auto stat = read_file(fmt::format("/proc/{}/stat", job));
    // D: a shell that was caught between vfork and its child's exec waits for the stopped child,
    // and runs as little.
    return stat &&
           (stat->find(") T ") != std::string::npos || stat->find(") D ") != std::string::npos);
  }));
  const std::size_t frozen_at = heard.out.size();
  link->freeze(false);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out.size() > frozen_at + 8; }));
  link->freeze(true);
  link->stop(seconds(30));  // a frozen job is thawed to be stopped
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  EXPECT_EQ(heard.exit->signal, SIGTERM);
}

TEST(Supervisor, ForwardsSignalsToTheGroup) {
  Rig rig;
  Heard heard;
  auto link = rig.start(
      TaskId(1),
      shell("trap 'echo usr1' USR1; trap 'exit 4' INT; echo up; while :; do sleep 0.02; done"));
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out == "up\n"; }));
  link->signal(SIGUSR1, SignalScope::main_only);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out.find("usr1") != std::string::npos; }));
  link->signal(SIGINT);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  EXPECT_EQ(heard.exit->code, 4);
}

TEST(Supervisor, RunsAsTheUserAndCannotComeBack) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root to become another user";
  Rig rig;
  TaskSpec spec = shell(
      "id -u; id -g; id -G; grep NoNewPrivs /proc/self/status; cat /proc/1/environ 2>/dev/null | "
      "wc -c; "
      "touch /etc/billow-test-must-not-exist 2>/dev/null && echo bad; exit 0");
  spec.identity = Identity{65534, 65534, {65534}};
  spec.no_new_privs = true;
  const Heard heard = rig.run(TaskId(1), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.out, "65534\n65534\n65534\nNoNewPrivs:\t1\n0\n")
      << heard.err << heard.exit->detail;
}

TEST(Supervisor, HidesDevicesInAPrivateDev) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root for a mount namespace";
  Rig rig;
  TaskSpec spec = shell(
      "ls /dev/full /dev/null /dev/zero 2>&1; echo x > /dev/null && head -c1 /dev/urandom | wc -c; "
      "ls -d /dev/pts /dev/shm; "
      "stat -c '%a %t:%T' /dev/null; mknod /dev/full c 1 7 2>/dev/null || echo refused; echo x > "
      "/dev/shm/billow-test-$$ && rm /dev/shm/billow-test-$$");
  spec.hide_devices = {"full"};
  const Heard heard = rig.run(TaskId(1), spec);
  ASSERT_TRUE(heard.exit);
  if (heard.exit->kind == static_cast<std::uint32_t>(supervise::ExitKind::not_started))
    GTEST_SKIP() << "not permitted here: " << heard.exit->detail;
  EXPECT_EQ(heard.out,
            "ls: cannot access '/dev/full': No such file or "
            "directory\n/dev/null\n/dev/zero\n1\n/dev/pts\n/dev/shm\n666 1:3\nrefused\n");
  EXPECT_TRUE(file_exists("/dev/full"));  // of the machine: untouched
}

TEST(Supervisor, HidesTheProcessesOfOthers) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root for a mount namespace";
  if (!Sandbox::detect().hides_processes())
    GTEST_SKIP() << Sandbox::detect().report_processes();
  Rig rig;
  TaskSpec spec = shell(fmt::format(
      "cat /proc/1/cmdline /proc/{}/cmdline 2>&1 | grep -c 'No such file'; ls -d /proc/1 2>&1;"
      " cat /proc/$$/cmdline | wc -c | grep -qx 0 || echo own; test -r /proc/meminfo && echo whole;"
      " head -1 /proc/mounts > /dev/null && echo mounts",
      ::getpid()));
  spec.identity = Identity{65534, 65534, {65534}};
  spec.no_new_privs = true;
  spec.private_proc = true;
  const Heard heard = rig.run(TaskId(1), spec);
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.out,
            "2\nls: cannot access '/proc/1': No such file or directory\nown\nwhole\nmounts\n")
      << heard.err << heard.exit->detail;
  EXPECT_FALSE(read_file("/proc/self/mounts").value_or("").contains("hidepid"))
      << "the machine's own /proc changed";
}

TEST(Supervisor, EndsWithTheProcessItIsTiedTo) {
  Rig rig;
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::pause();
    ::_exit(0);
  }
  TaskSpec spec = shell("echo up; sleep 300");
  spec.die_with_pid = parent;
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out == "up\n"; }));
  ::kill(parent, SIGKILL);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->cause, static_cast<std::uint32_t>(EndCause::parent_ended));
  ::waitpid(parent, nullptr, 0);
}

TEST(Supervisor, TakesSigtermAsARequestToStop) {
  Rig rig;
  Heard heard;
  auto link = rig.start(TaskId(1), shell("sleep 300"));
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.reached(SupervisorState::running); }));
  ::kill(heard.statuses.back().supervisor_pid, SIGTERM);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  EXPECT_EQ(heard.exit->cause, static_cast<std::uint32_t>(EndCause::supervisor_signal));
}

}  // namespace
}  // namespace billow::agent
