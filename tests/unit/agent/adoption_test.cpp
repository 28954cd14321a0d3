// Task directories across restarts, and many tasks at once.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/rng.h"
#include "rig.h"

namespace billow::agent {
namespace {

namespace sv = supervise;

TEST(TaskDirs, RefusesToStartATaskTwice) {
  Rig rig;
  TaskSpec spec = shell("echo ran >> marks");
  spec.cwd = rig.root();
  rig.run(TaskId(1), spec);
  const auto again = rig.start(TaskId(1), spec);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::conflict);
  EXPECT_EQ(*read_file(rig.root() + "/marks"), "ran\n");
}

TEST(TaskDirs, ASecondSupervisorOfOneTaskGivesUp) {
  Rig rig;
  Heard heard;
  TaskSpec spec = shell("echo up; sleep 300");
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out == "up\n"; }));
  // Somebody starts another by mistake, with a lock descriptor of its own.
  Fd lock(::open((rig.dirs().path(TaskId(1)) + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  auto second = rig.launcher().launch({TaskId(1), rig.dirs().path(TaskId(1)), std::move(lock)});
  ASSERT_TRUE(second);
  Heard other;
  ASSERT_TRUE(rig.until(*second, other, [&] { return other.closed; }));
  EXPECT_FALSE(other.exit);
  EXPECT_EQ(rig.dirs().find(TaskId(1))->presence, TaskPresence::supervised);
  link->stop(seconds(5));
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
}

TEST(TaskDirs, TellsRunningEndedLostAndNeverStartedApart) {
  Rig rig;
  Heard heard, lost;
  auto running = rig.start(TaskId(1), shell("sleep 300"), "about one");
  rig.run(TaskId(2), shell("exit 4"));
  auto doomed = rig.start(TaskId(3), shell("sleep 300"));
  ASSERT_TRUE(running && doomed);
  ASSERT_TRUE(
      rig.until(*running, heard, [&] { return heard.reached(sv::SupervisorState::running); }));
  ASSERT_TRUE(rig.until(*doomed, lost, [&] { return lost.reached(sv::SupervisorState::running); }));
  ::kill(lost.statuses.back().supervisor_pid, SIGKILL);
  ::kill(lost.statuses.back().job_pid, SIGKILL);
  ASSERT_TRUE(rig.until(*doomed, lost, [&] { return lost.closed; }));
  ASSERT_TRUE(rig.dirs().create(
      TaskId(4), shell("true")));  // an agent that died before it started the supervisor
  sv::ExitRecord before{};
  before.magic = sv::exit_magic;
  ASSERT_TRUE(rig.dirs().record_end(TaskId(5), before));
  ASSERT_TRUE(Rig::pump_until(
      [&] { return rig.dirs().find(TaskId(3))->presence != TaskPresence::supervised; }));

  const auto tasks = rig.dirs().list();
  ASSERT_TRUE(tasks);
  ASSERT_EQ(tasks->size(), 5u);
  EXPECT_EQ((*tasks)[0].presence, TaskPresence::supervised);
  EXPECT_EQ((*tasks)[0].meta, "about one");
  EXPECT_EQ((*tasks)[1].presence, TaskPresence::ended);
  EXPECT_EQ((*tasks)[1].exit->code, 4);
  EXPECT_EQ((*tasks)[2].presence, TaskPresence::lost);
  EXPECT_EQ((*tasks)[3].presence, TaskPresence::never_started);
  EXPECT_EQ((*tasks)[4].presence, TaskPresence::ended);

  EXPECT_EQ(rig.dirs().remove(TaskId(1)).error().code, Code::conflict);
  ASSERT_TRUE(rig.dirs().acknowledge(TaskId(2)));
  EXPECT_TRUE(rig.dirs().find(TaskId(2))->acknowledged);
  ASSERT_TRUE(rig.dirs().remove(TaskId(2)));
  EXPECT_EQ(rig.dirs().find(TaskId(2)).error().code, Code::not_found);
  running->stop(seconds(5));
  ASSERT_TRUE(rig.until(*running, heard, [&] { return heard.closed; }));
}

// An agent without a free descriptor took running tasks for lost, killed them, and removed the
// files of all of them when it started.
TEST(TaskDirs, WhatCannotBeReadIsNeitherLostNorForgotten) {
  Rig rig;
  ASSERT_TRUE(rig.dirs().create(TaskId(1), shell("true")));
  rig.run(TaskId(2), shell("exit 4"));
  const auto unreadable = [&](TaskId id, const char* name) {
    const std::string path = rig.dirs().path(id) + "/" + name;
    EXPECT_EQ(::unlink(path.c_str()), 0);
    EXPECT_EQ(::symlink(name, path.c_str()), 0);  // leads to itself: not even root can open it
  };
  unreadable(TaskId(1), sv::file_lock);
  unreadable(TaskId(2), sv::file_exit);
  for (const TaskId id : {TaskId(1), TaskId(2)}) {
    const auto found = rig.dirs().find(id);
    ASSERT_FALSE(found);
    EXPECT_TRUE(is_unreadable(found.error())) << found.error().message;
  }
  EXPECT_FALSE(rig.dirs().list());
  EXPECT_FALSE(rig.dirs().remove(TaskId(1)));
  EXPECT_TRUE(supervisor_alive(rig.dirs().path(TaskId(1))));
}

TEST(TaskDirs, AnAdoptedTaskIsControlledThroughItsSocket) {
  Rig rig;
  TaskSpec spec = shell("echo before; read line; echo \"got $line\"; read line; exit 6");
  spec.stdin_open = true;
  {
    Heard heard;
    auto link = rig.start(TaskId(1), spec);
    ASSERT_TRUE(link);
    ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.out == "before\n"; }));
    link->send_stdin(0, "first\n");
    ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.ack.accepted == 6; }));
  }  // the agent is gone
  auto link = rig.launcher().connect(rig.dirs().path(TaskId(1)));
  ASSERT_TRUE(link) << link.error().message;
  Heard heard;
  ASSERT_TRUE(rig.until(*link, heard, [&] { return !heard.statuses.empty(); }));
  EXPECT_EQ(heard.statuses[0].stdin_accepted, 6u);
  link->send_stdin(0, "first\nsecond\n");  // sends again from the start: taken once
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->code, 6);
  EXPECT_EQ(rig.read_log(TaskId(1)).out, "before\ngot first\n");
}

TEST(Launcher, TwoHundredQuickTasksAllEndRightAndLeaveNothing) {
  Rig rig;
  struct One {
    SupervisorLink link;
    Heard heard;
  };
  std::vector<std::unique_ptr<One>> all;
  for (unsigned i = 1; i <= 200; ++i) {
    TaskSpec spec = shell(fmt::format("echo {0}; exit {1}", i, i % 256));
    auto link = rig.start(TaskId(i), spec);
    ASSERT_TRUE(link) << link.error().message;
    all.push_back(std::make_unique<One>(One{std::move(*link), {}}));
  }
  for (unsigned i = 1; i <= 200; ++i) {
    One& one = *all[i - 1];
    ASSERT_TRUE(rig.until(one.link, one.heard, [&] { return one.heard.closed; })) << i;
    ASSERT_TRUE(one.heard.exit) << i;
    EXPECT_EQ(one.heard.exit->code, static_cast<int>(i % 256));
    EXPECT_EQ(one.heard.out, fmt::format("{}\n", i));
    EXPECT_EQ(read_exit(rig.dirs().path(TaskId(i)))->code, static_cast<int>(i % 256));
  }
  EXPECT_TRUE(Rig::pump_until([&] { return rig.launcher().reap() == 0; }));
}

TEST(Launcher, SaysWhatToDoWithoutTheProgram) {
  const auto launcher = Launcher::create({"/no/such/billow-supervise"});
  ASSERT_FALSE(launcher);
  EXPECT_NE(launcher.error().hint.find("BILLOW_SUPERVISE"), std::string::npos);
}

// Garbage on its control sockets never harms the job: the worst is a closed connection.
TEST(SupervisorFuzz, GarbageOnTheControlSocketHarmsNobody) {
  Rig rig;
  TaskSpec spec = shell("trap '' INT USR1 USR2 HUP; read line; echo \"end $line\"");
  spec.stdin_open = true;
  Heard heard;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.reached(sv::SupervisorState::running); }));
  *link = SupervisorLink();  // it listens once its first agent is gone
  auto again = rig.launcher().connect(rig.dirs().path(TaskId(1)));
  ASSERT_TRUE(again) << again.error().message;
  *link = std::move(*again);
  // Frames that would do what they are asked to are left out: stop, deadlines, input and signals
  // that end a job.
  const std::uint16_t harmless[] = {3, 7, 8, 9, 10, 11, 99, 100, 102, 103, 104, 105, 106, 65535};
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    auto other = rig.launcher().connect(rig.dirs().path(TaskId(1)));
    if (!other)
      continue;  // all its places taken for a moment
    std::string bytes;
    const int frames = static_cast<int>(rng.below(8)) + 1;
    for (int i = 0; i < frames; ++i) {
      sv::FrameHead head{static_cast<std::uint32_t>(rng.below(64)),
                         harmless[rng.below(std::size(harmless))],
                         static_cast<std::uint16_t>(rng.next())};
      if (rng.chance(0.1))
        head.bytes = static_cast<std::uint32_t>(rng.next());
      bytes.append(reinterpret_cast<const char*>(&head), sizeof(head));
      for (std::uint32_t b = 0; b < std::min(head.bytes, 4096u); ++b)
        bytes.push_back(static_cast<char>(rng.next()));
    }
    if (rng.chance(0.3))
      bytes.resize(rng.below(bytes.size()) + 1);
    [[maybe_unused]] const ssize_t n =
        ::send(other->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  link->freeze(false);
  link->request_status();
  const std::size_t before = heard.statuses.size();
  ASSERT_TRUE(
      rig.until(*link, heard, [&] { return heard.statuses.size() > before || heard.closed; }));
  link->send_stdin(0, "well\n");
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.exit->code, 0);
  EXPECT_EQ(rig.read_log(TaskId(1)).out, "end well\n");
}

// A supervisor given a damaged spec records why, and starts nothing.
TEST(SupervisorFuzz, ADamagedSpecIsRecordedAsNotStarted) {
  Rig rig;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    auto task = rig.dirs().create(TaskId(seed), shell("true"));
    ASSERT_TRUE(task);
    std::string bytes = *read_file(task->path + "/spec");
    bytes.resize(rng.below(bytes.size()));
    ASSERT_TRUE(write_file_atomic(task->path + "/spec", bytes, 0600));
    auto link = rig.launcher().launch(std::move(*task));
    ASSERT_TRUE(link);
    Heard heard;
    ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
    const auto exit = read_exit(rig.dirs().path(TaskId(seed)));
    ASSERT_TRUE(exit) << "seed " << seed;
    EXPECT_EQ(exit->kind, static_cast<std::uint32_t>(sv::ExitKind::not_started));
    EXPECT_STRNE(exit->detail, "");
  }
}

}  // namespace
}  // namespace billow::agent
