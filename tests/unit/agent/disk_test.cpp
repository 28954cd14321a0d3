// What a task's files take on the disk, and the end of a task that takes too much.
#include "agent/observe/disk_use.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <future>
#include <thread>

#include "agent/content/file_socket.h"
#include "agent/task/disk_guard.h"
#include "agent/task/tasks.h"
#include "rig.h"

namespace billow::agent {
namespace {

constexpr std::int64_t mib = 1 << 20;

void fill(const std::string& path, std::int64_t bytes) {
  ASSERT_TRUE(write_file_atomic(path, std::string(static_cast<std::size_t>(bytes), 'x'), 0600));
}

TEST(DiskUse, CountsEachFileOnceAndFollowsNoLink) {
  Rig rig;
  const std::string top = rig.root() + "/top", other = rig.root() + "/other";
  ASSERT_TRUE(make_directories(top + "/a/b", 0755));
  ASSERT_TRUE(make_directories(other, 0755));
  fill(top + "/a/b/file", 4 * mib);
  fill(other + "/large", 32 * mib);
  ASSERT_EQ(::link((top + "/a/b/file").c_str(), (top + "/a/again").c_str()), 0);
  ASSERT_EQ(::symlink(other.c_str(), (top + "/elsewhere").c_str()), 0);
  const DiskUse use = disk_use({top, rig.root() + "/missing"}, {});
  EXPECT_GE(use.bytes, 4 * mib);
  EXPECT_LT(use.bytes, 5 * mib);
  EXPECT_EQ(use.entries, 6);
  EXPECT_TRUE(use.complete);
  EXPECT_GE(disk_use({top, other}, {}).bytes, 36 * mib);
  EXPECT_FALSE(disk_use({top}, {}, 3).complete);
}

TEST(DiskUse, CountsWhatIsDeletedAndStillOpen) {
  Rig rig;
  const std::string top = rig.root() + "/top";
  ASSERT_TRUE(make_directories(top, 0755));
  fill(top + "/gone", 8 * mib);
  const Fd held(::open((top + "/gone").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::unlink((top + "/gone").c_str()), 0);
  EXPECT_LT(disk_use({top}, {}).bytes, mib);
  EXPECT_GE(disk_use({top}, {::getpid()}).bytes, 8 * mib);
}

TEST(DiskUse, CountsWhatIsDeletedAndOnlyMapped) {
  Rig rig;
  const std::string top = rig.root() + "/top";
  ASSERT_TRUE(make_directories(top, 0755));
  fill(top + "/gone", 8 * mib);
  Fd held(::open((top + "/gone").c_str(), O_RDONLY | O_CLOEXEC));
  void* mapped = ::mmap(nullptr, 8 * mib, PROT_READ, MAP_SHARED, held.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  held = Fd();
  ASSERT_EQ(::unlink((top + "/gone").c_str()), 0);
  EXPECT_GE(disk_use({top}, {::getpid()}).bytes, 8 * mib);
  ::munmap(mapped, 8 * mib);
  EXPECT_LT(disk_use({top}, {::getpid()}).bytes, mib);
}

TEST(DiskUse, CountsWhatAThreadWithFilesOfItsOwnHoldsOpen) {
  Rig rig;
  const std::string top = rig.root() + "/top";
  ASSERT_TRUE(make_directories(top, 0755));
  fill(top + "/gone", 8 * mib);
  std::promise<bool> holds;
  std::promise<void> enough;
  std::thread keeper([&] {
    const bool own = ::unshare(CLONE_FILES) == 0;
    const Fd held(::open((top + "/gone").c_str(), O_RDONLY | O_CLOEXEC));
    holds.set_value(own && held);
    enough.get_future().wait();
  });
  EXPECT_TRUE(holds.get_future().get());
  ::unlink((top + "/gone").c_str());
  EXPECT_GE(disk_use({top}, {::getpid()}).bytes, 8 * mib);
  enough.set_value();
  keeper.join();
  EXPECT_LT(disk_use({top}, {::getpid()}).bytes, mib);
}

// Handles are opened by root only.
bool has_handles() {
  return ::geteuid() == 0;
}

TEST(DiskUse, FindsWhatIsMovedWhileItIsCounted) {
  if (!has_handles())
    GTEST_SKIP() << "needs root";
  Rig rig;
  const std::string top = rig.root() + "/top";
  // The directories hold many names, so that reading them takes longer than moving.
  const std::string places[] = {top + "/a", top + "/b"};
  for (const std::string& place : places) {
    ASSERT_TRUE(make_directories(place, 0755));
    for (int i = 0; i < 300; ++i)
      ASSERT_EQ(::mknod((place + "/" + std::to_string(i)).c_str(), S_IFREG | 0600, 0), 0);
  }
  fill(places[0] + "/large", 8 * mib);
  ASSERT_TRUE(make_directories(places[0] + "/many", 0755));
  for (int i = 0; i < 64; ++i)
    fill(places[0] + "/many/" + std::to_string(i), 32 << 10);
  DiskMemory memory;
  ASSERT_GE(disk_use({top}, {}, disk_entries_max, &memory).bytes, 10 * mib);
  std::atomic<bool> over = false;
  std::thread mover([&] {
    for (int from = 0; !over; from = 1 - from)
      for (const char* name : {"/large", "/many"})
        ::rename((places[from] + name).c_str(), (places[1 - from] + name).c_str());
  });
  int hidden = 0;
  for (int i = 0; i < 10 || (hidden == 0 && i < 1000); ++i) {
    hidden += disk_use({top}, {}).bytes < 10 * mib;
    const DiskUse use = disk_use({top}, {}, disk_entries_max, &memory);
    EXPECT_GE(use.bytes, 10 * mib);
    EXPECT_LT(use.bytes, 15 * mib) << "nothing large is counted twice";
  }
  over = true;
  mover.join();
  EXPECT_GT(hidden, 0) << "without its memory a look is deceived, or this test tests nothing";
}

TEST(DiskUse, FindsWhatIsDeletedAndOnlyInASocket) {
  if (!has_handles())
    GTEST_SKIP() << "needs root";
  Rig rig;
  const std::string top = rig.root() + "/top";
  ASSERT_TRUE(make_directories(top, 0755));
  fill(top + "/gone", 8 * mib);
  DiskMemory memory;
  const auto bytes = [&] {
    return disk_use({top}, {::getpid()}, disk_entries_max, &memory).bytes;
  };
  ASSERT_GE(bytes(), 8 * mib);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Fd sends(ends[0]), receives(ends[1]);
  {
    const Fd held(::open((top + "/gone").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(file_socket::send_descriptor(sends.get(), held.get()));
  }
  ASSERT_EQ(::unlink((top + "/gone").c_str()), 0);
  EXPECT_LT(disk_use({top}, {::getpid()}).bytes, mib);
  EXPECT_GE(bytes(), 8 * mib);
  sends.reset();
  receives.reset();
  EXPECT_LT(bytes(), mib);
}

TEST(DiskUse, ForgetsWhatHasLeftThePlaces) {
  Rig rig;
  const std::string top = rig.root() + "/top", home = rig.root() + "/home";
  ASSERT_TRUE(make_directories(top + "/results", 0755));
  ASSERT_TRUE(make_directories(home, 0755));
  fill(top + "/results/model", 8 * mib);
  fill(top + "/log", 8 * mib);
  DiskMemory memory;
  ASSERT_GE(disk_use({top}, {}, disk_entries_max, &memory).bytes, 16 * mib);
  ASSERT_EQ(::rename((top + "/results").c_str(), (home + "/results").c_str()), 0);
  ASSERT_EQ(::unlink((top + "/log").c_str()), 0);
  EXPECT_LT(disk_use({top}, {}, disk_entries_max, &memory).bytes, mib);
}

TEST(DiskUse, SaysWhenDirectoriesAreTooDeep) {
  Rig rig;
  const std::string top = rig.root() + "/top";
  ASSERT_TRUE(make_directories(top, 0755));
  Fd at(::open(top.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (std::size_t i = 0; i < disk_depth_max + 10; ++i) {
    ASSERT_EQ(::mkdirat(at.get(), "d", 0755), 0);
    at = Fd(::openat(at.get(), "d", O_PATH | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(at);
  }
  EXPECT_TRUE(disk_use({top}, {}).too_deep);
}

TEST(DiskGuard, EndsOnlyWhatExceedsItsLimit) {
  Rig rig;
  net::Loop loop;
  std::map<TaskId, std::string> stopped;
  DiskGuard guard(loop, {.period = milliseconds(20), .hurry = milliseconds(10)},
                  {.processes = [](TaskId) { return std::vector<int>{}; },
                   .stop =
                       [&](TaskId task, const std::string& why) {
                         stopped[task] = why;
                       }});
  const std::string one = rig.root() + "/one", two = rig.root() + "/two";
  for (const std::string& place : {one, two})
    ASSERT_TRUE(make_directories(place, 0755));
  guard.watch(TaskId(1), {4 * mib, {one}});
  guard.watch(TaskId(2), {4 * mib, {two}});
  guard.watch(TaskId(3), {0, {two}});
  fill(one + "/small", 2 * mib);
  fill(two + "/small", 2 * mib);
  EXPECT_FALSE(loop.run_until([&] { return !stopped.empty(); }, milliseconds(300)));
  fill(two + "/large", 3 * mib);
  ASSERT_TRUE(loop.run_until([&] { return !stopped.empty(); }, seconds(60)));
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_NE(stopped[TaskId(2)].find("its limit is 4 MiB"), std::string::npos) << stopped[TaskId(2)];
  EXPECT_EQ(guard.why(TaskId(2)), stopped[TaskId(2)]);
  EXPECT_EQ(guard.why(TaskId(1)), "");
}

// Tasks that start all the time put no look off.
TEST(DiskGuard, LooksHoweverOftenTasksStart) {
  Rig rig;
  net::Loop loop;
  bool stopped = false;
  DiskGuard guard(loop, {.period = milliseconds(40), .hurry = milliseconds(20)},
                  {.processes = [](TaskId) { return std::vector<int>{}; },
                   .stop =
                       [&](TaskId, const std::string&) {
                         stopped = true;
                       }});
  const std::string place = rig.root() + "/one";
  ASSERT_TRUE(make_directories(place, 0755));
  fill(place + "/large", 8 * mib);
  guard.watch(TaskId(1), {4 * mib, {place}});
  std::uint64_t next = 2;
  const auto starts = loop.every(milliseconds(5), [&] {
    guard.ended(TaskId(next - 1 > 1 ? next - 1 : 0));
    guard.watch(TaskId(next++), {64 * mib, {rig.root() + "/none"}});
  });
  EXPECT_TRUE(loop.run_until([&] { return stopped; }, seconds(30)));
}

}  // namespace
}  // namespace billow::agent
