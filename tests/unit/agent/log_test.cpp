// The log: whole, in order, resumable, bounded; whatever happens to the agent or the disk.
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "base/text.h"
#include "rig.h"

namespace billow::agent {
namespace {

namespace sv = supervise;

// A job that writes numbered lines on both streams: what is missing, doubled or out of order shows.
TaskSpec writer(int lines_per_stream) {
  TaskSpec spec =
      shell(fmt::format("awk 'BEGIN {{ for (i = 0; i < {0}; i++) {{ printf \"%09d "
                        ".........................................................................."
                        "............\\n\", i; "
                        "printf \"%09d "
                        "e........................................................................."
                        "............\\n\", i | \"cat >&2\" }} }}'",
                        lines_per_stream));
  spec.subscription = sv::Subscription::notify;
  return spec;
}
// The first line that is not the one expected; -1 where all are right.
std::int64_t first_wrong_line(const std::string& text, std::int64_t first, std::int64_t count) {
  constexpr std::size_t line_bytes = 97;
  if (text.size() != static_cast<std::size_t>(count) * line_bytes)
    return static_cast<std::int64_t>(text.size() / line_bytes);
  for (std::int64_t i = 0; i < count; ++i)
    if (std::atoll(text.c_str() + static_cast<std::size_t>(i) * line_bytes) != first + i)
      return i;
  return -1;
}

TEST(TaskLog, FiftyMegabytesSurviveAnAgentKilledAgainAndAgain) {
  Rig rig;
  constexpr int lines = 260'000;  // 2 × 25 MB
  TaskSpec spec = writer(lines);
  spec.log_segment_bytes = 8 << 20;
  spec.log_segments_max = 64;
  auto task = rig.dirs().create(TaskId(1), spec);
  ASSERT_TRUE(task);
  // Each "agent" is a process of its own that follows the log live, and is killed without warning.
  Rng rng(4711);
  bool launched = false;
  for (int life = 0; life < 12; ++life) {
    int gate[2];
    ASSERT_EQ(::pipe(gate), 0);
    const pid_t agent = ::fork();
    ASSERT_GE(agent, 0);
    if (agent == 0) {
      Heard heard;
      auto link = launched ? rig.launcher().connect(rig.dirs().path(TaskId(1)))
                           : rig.launcher().launch(std::move(*task));
      if (!link)
        ::_exit(1);
      link->subscribe(sv::Subscription::live);
      char byte = 1;
      if (::write(gate[1], &byte, 1) != 1)
        ::_exit(1);
      while (link->open()) {
        pollfd p{link->fd(), POLLIN, 0};
        ::poll(&p, 1, 1000);
        link->on_readable(heard);
      }
      ::_exit(0);
    }
    ::close(gate[1]);
    if (!launched)
      task->lock.reset();  // the agent process has handed its copy on
    launched = true;
    char byte = 0;
    [[maybe_unused]] const ssize_t n = ::read(gate[0], &byte, 1);
    ::close(gate[0]);
    ::poll(nullptr, 0, static_cast<int>(rng.below(40)));
    ::kill(agent, SIGKILL);
    ::waitpid(agent, nullptr, 0);
  }
  ASSERT_TRUE(Rig::pump_until([&] {
    const auto found = rig.dirs().find(TaskId(1));
    return found && found->presence == TaskPresence::ended;
  }));
  const auto found = rig.dirs().find(TaskId(1));
  EXPECT_EQ(found->exit->code, 0) << found->exit->detail;
  const auto log = rig.read_log(TaskId(1));
  EXPECT_EQ(log.gone, 0u);
  EXPECT_EQ(log.next, found->exit->log_end);
  EXPECT_EQ(first_wrong_line(log.out, 0, lines), -1);
  EXPECT_EQ(first_wrong_line(log.err, 0, lines), -1);
}

TEST(TaskLog, DropsTheOldestSegmentsAndSaysHowMuchIsGone) {
  Rig rig;
  TaskSpec spec = writer(40'000);  // 2 × 3.9 MB
  spec.log_segment_bytes = 1 << 20;
  spec.log_segments_max = 3;
  const Heard heard = rig.run(TaskId(1), spec);
  ASSERT_TRUE(heard.exit);
  const auto log = rig.read_log(TaskId(1));
  EXPECT_GT(log.gone, 4u << 20);
  EXPECT_EQ(log.next, heard.exit->log_end);
  EXPECT_LE(log.next - log.gone, 3u << 20);
  EXPECT_GT(log.next - log.gone, 1u << 20);
  // What is left is the end, without a hole.
  ASSERT_GT(log.out.size(), 97u * 100);
  const std::int64_t first = std::atoll(log.out.c_str() + log.out.find('\n') + 1);
  const std::string from_second = log.out.substr(log.out.find('\n') + 1);
  EXPECT_EQ(first_wrong_line(from_second, first, 40'000 - first), -1);
}

TEST(TaskLog, AFollowerResumesByOffsetWhereItWas) {
  Rig rig;
  TaskSpec spec = writer(3'000);
  spec.log_segment_bytes = 64 << 10;
  spec.log_segments_max = 64;
  rig.run(TaskId(1), spec);
  const auto whole = rig.read_log(TaskId(1));
  // Chunks of many sizes, each from a reader that knows nothing but the offset.
  for (std::size_t chunk_bytes : {1u, 1000u, 70'000u, 1u << 20}) {
    std::string out, err;
    for (std::uint64_t next = 0;;) {
      LogReader fresh(rig.dirs().path(TaskId(1)));
      auto chunk = fresh.read(next, chunk_bytes);
      ASSERT_TRUE(chunk);
      ASSERT_EQ(chunk->offset, next);
      ASSERT_TRUE(for_each_record(chunk->frames, chunk->offset, [&](const LogRecord& r) {
        (r.stream == sv::Stream::out ? out : err).append(r.data);
      }));
      next = chunk->next_offset;
      if (chunk->at_end)
        break;
    }
    EXPECT_EQ(out, whole.out);
    EXPECT_EQ(err, whole.err);
  }
}

TEST(TaskLog, AnOffsetFromNowhereIsMovedToTheNextRecord) {
  Rig rig;
  rig.run(TaskId(1), shell("echo one; sleep 0.01; echo two; sleep 0.01; echo three"));
  LogReader reader(rig.dirs().path(TaskId(1)));
  const std::uint64_t end = *reader.end();
  for (std::uint64_t offset = 0; offset <= end + 10; ++offset) {
    LogReader fresh(rig.dirs().path(TaskId(1)));
    const auto chunk = fresh.read(offset, 1000);
    ASSERT_TRUE(chunk);
    EXPECT_TRUE(for_each_record(chunk->frames, chunk->offset, [](const LogRecord&) {})) << offset;
    EXPECT_EQ(chunk->next_offset, end);
  }
  EXPECT_TRUE(reader.read(UINT64_MAX, 1000));
  const auto tail = reader.tail_offset(22);
  ASSERT_TRUE(tail);
  EXPECT_EQ(*tail, end - (16 + 6));
}

TEST(TaskLog, AFollowerThatDoesNotReadNeverHoldsTheJob) {
  Rig rig;
  TaskSpec spec = writer(40'000);
  spec.subscription = sv::Subscription::live;
  auto link = rig.start(TaskId(1), spec);
  ASSERT_TRUE(link);
  ASSERT_TRUE(Rig::pump_until([&] { return read_exit(rig.dirs().path(TaskId(1))).has_value(); }))
      << "the job waits for its follower";
  Heard heard;
  ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
  EXPECT_LT(heard.out.size() + heard.err.size(),
            2u * 40'000 * 97);  // it was not buffered for us either
  const auto log = rig.read_log(TaskId(1));
  EXPECT_EQ(first_wrong_line(log.out, 0, 40'000), -1);
  EXPECT_EQ(first_wrong_line(log.err, 0, 40'000), -1);
}

TEST(TaskLog, AFullDiskLosesBytesButNotTheJobNorItsExit) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root to mount a small filesystem";
  Rig rig;
  const std::string small = rig.root() + "/small";
  ASSERT_EQ(::mkdir(small.c_str(), 0755), 0);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=512k") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs: " << strerrordesc_np(errno);
  {
    auto dirs = TaskDirs::open(small + "/tasks");
    ASSERT_TRUE(dirs);
    TaskSpec spec = shell(
        "head -c 2000000 /dev/zero | tr '\\0' x; echo full > go; while [ -f go ]; do sleep 0.01; "
        "done; echo after; exit 3");
    spec.cwd = rig.root();
    auto task = dirs->create(TaskId(1), spec);
    ASSERT_TRUE(task) << task.error().message;
    auto link = rig.launcher().launch(std::move(*task));
    ASSERT_TRUE(link);
    Heard heard;
    ASSERT_TRUE(rig.until(*link, heard, [&] { return file_exists(rig.root() + "/go"); }));
    // Somebody makes room.
    ::mount("tmpfs", small.c_str(), "tmpfs", MS_REMOUNT, "size=8m");
    ::unlink((rig.root() + "/go").c_str());
    ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
    ASSERT_TRUE(heard.exit);
    EXPECT_EQ(heard.exit->code, 3);
    EXPECT_GT(heard.exit->log_dropped_bytes, 1'000'000u);
    LogReader reader(dirs->path(TaskId(1)));
    std::string out, notice;
    for (std::uint64_t next = 0;;) {
      auto chunk = reader.read(next, 64 << 10);
      ASSERT_TRUE(chunk);
      for_each_record(chunk->frames, chunk->offset,
                      [&](const LogRecord& r) { (r.notice ? notice : out).append(r.data); });
      next = chunk->next_offset;
      if (chunk->at_end)
        break;
    }
    EXPECT_TRUE(out.ends_with("after\n"));
    // Every lost byte is told of, in as many notices as there were gaps.
    std::uint64_t told = 0;
    for (const auto& line : split(notice, '\n')) {
      if (line.empty())
        continue;
      EXPECT_TRUE(line.starts_with("billow: ") && line.ends_with(" bytes lost: disk full")) << line;
      told += std::strtoull(line.c_str() + 8, nullptr, 10);
    }
    EXPECT_EQ(told, heard.exit->log_dropped_bytes);
    EXPECT_EQ(out.size() + heard.exit->log_dropped_bytes, 2'000'006u);
    EXPECT_TRUE(read_exit(dirs->path(TaskId(1))));
  }
  EXPECT_TRUE(Rig::pump_until([&] { return ::umount(small.c_str()) == 0; }));
}

// One job's output must not take the space that the head's journal needs.
TEST(TaskLog, LogsLeaveAReserveOfTheDiskFree) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root to mount a small filesystem";
  Rig rig;
  const std::string small = rig.root() + "/small";
  ASSERT_EQ(::mkdir(small.c_str(), 0755), 0);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=60m") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs: " << strerrordesc_np(errno);
  {
    auto dirs = TaskDirs::open(small + "/tasks");
    ASSERT_TRUE(dirs);
    TaskSpec spec = shell("head -c 100000000 /dev/zero | tr '\\0' x; echo last");
    spec.cwd = rig.root();
    auto task = dirs->create(TaskId(1), spec);
    ASSERT_TRUE(task) << task.error().message;
    auto link = rig.launcher().launch(std::move(*task));
    ASSERT_TRUE(link);
    ASSERT_TRUE(Rig::pump_until([&] { return read_exit(dirs->path(TaskId(1))).has_value(); }));
    const auto exit = read_exit(dirs->path(TaskId(1)));
    EXPECT_EQ(exit->code, 0);
    struct statvfs disk {};
    ASSERT_EQ(::statvfs(small.c_str(), &disk), 0);
    // A twentieth, less what is written between two looks.
    EXPECT_GT(disk.f_bavail * disk.f_frsize, 1'500'000u);
    EXPECT_EQ(exit->log_dropped_bytes, 0u) << "its own oldest segments go first";
  }
  EXPECT_TRUE(Rig::pump_until([&] { return ::umount(small.c_str()) == 0; }));
}

TEST(TaskLog, TheExitReachesADiskThatStaysFull) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root to mount a small filesystem";
  Rig rig;
  const std::string small = rig.root() + "/small";
  ASSERT_EQ(::mkdir(small.c_str(), 0755), 0);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs: " << strerrordesc_np(errno);
  {
    auto dirs = TaskDirs::open(small + "/tasks");
    auto task = dirs->create(TaskId(1), shell("head -c 2000000 /dev/zero; exit 9"));
    ASSERT_TRUE(task) << task.error().message;
    auto link = rig.launcher().launch(std::move(*task));
    ASSERT_TRUE(link);
    Heard heard;
    ASSERT_TRUE(rig.until(*link, heard, [&] { return heard.closed; }));
    const auto exit = read_exit(dirs->path(TaskId(1)));
    ASSERT_TRUE(exit) << exit.error().message;
    EXPECT_EQ(exit->code, 9);
  }
  EXPECT_TRUE(Rig::pump_until([&] { return ::umount(small.c_str()) == 0; }));
}

}  // namespace
}  // namespace billow::agent
