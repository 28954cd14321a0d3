// A disk that really is full: a small tmpfs in a mount namespace of a child process's own, filled
// to the last block. Inside, everything is checked by exit codes and messages on stderr, because
// the child cannot report to GoogleTest.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "tests/unit/store/store_test_support.h"

namespace billow {
namespace {
using namespace store_test;

constexpr int exit_not_permitted = 77;
constexpr std::uint64_t ballast_bytes = 1 << 20;

#define INSIDE_CHECK(condition)                                                    \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      ::_exit(1);                                                                  \
    }                                                                              \
  } while (0)

// Takes all free space of the file system but `leave` bytes.
void fill(const std::string& path, std::uint64_t leave) {
  struct statvfs info = {};
  INSIDE_CHECK(::statvfs(path.substr(0, path.rfind('/')).c_str(), &info) == 0);
  const std::uint64_t free_bytes = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  Fd fd(::open(path.c_str(), O_CREAT | O_WRONLY, 0600));
  INSIDE_CHECK(fd);
  if (free_bytes > leave)
    INSIDE_CHECK(::posix_fallocate(fd.get(), 0, static_cast<off_t>(free_bytes - leave)) == 0);
}

// Runs `inside` in a child whose `dir` is an empty tmpfs of 8 MiB.
int on_small_disk(const std::string& dir, void (*inside)(const std::string& dir)) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=8m") != 0) {
      ::_exit(exit_not_permitted);
    }
    inside(dir);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define ON_SMALL_DISK(function)                                                     \
  TempDir dir;                                                                      \
  const int code = on_small_disk(dir.path(), function);                             \
  if (code == exit_not_permitted)                                                   \
    GTEST_SKIP() << "needs the right to mount a tmpfs (root) in a mount namespace"; \
  EXPECT_EQ(code, 0)

void fill_and_recover(const std::string& dir) {
  std::atomic<int> low{0}, ok{0}, fatal{0};
  JournalHooks hooks;
  hooks.on_health = [&](StoreHealth health, const Error& why) {
    if (health == StoreHealth::disk_low && why.code == Code::storage_full)
      ++low;
    if (health == StoreHealth::ok)
      ++ok;
    if (health == StoreHealth::fatal)
      ++fatal;
  };
  const std::string data = dir + "/data";
  {
    auto store = open_store(data, hooks, ballast_bytes);
    Journal& journal = store->journal();
    const std::string payload(1000, 'x');
    const auto add = [&] {
      Batch batch = batch_of(1, payload);
      batch.jobs.push_back(job(journal.next_seq()));
      journal.append(std::move(batch));
    };
    add();
    INSIDE_CHECK(journal.flush(seconds(20)));
    fill(dir + "/filler", 64 << 10);
    // Running work goes on in the ballast's room, also if each entry is committed alone, which
    // takes the most space.
    for (int i = 0; i < 60; ++i)
      add();
    INSIDE_CHECK(journal.flush(seconds(20)));
    INSIDE_CHECK(eventually([&] { return low == 1; }));
    INSIDE_CHECK(journal.health() == StoreHealth::disk_low);
    INSIDE_CHECK(!journal.save_snapshot(1, "no room for this now"));
    // Then that is full too: what is appended waits.
    fill(dir + "/filler2", 0);
    for (int i = 0; i < 3000; ++i)
      add();
    INSIDE_CHECK(journal.flush(milliseconds(300)).error().code == Code::storage_full);
    const Seq durable = journal.durable_seq();
    INSIDE_CHECK(durable < journal.next_seq() - 1);
    INSIDE_CHECK(*journal.read(durable - 1, 10, [](const Record&) { return true; }) == durable);
    INSIDE_CHECK(store->queries().get_job(JobId(durable))->has_value());
    // Room again: all of it is written, the ballast comes back, and the store says so.
    ::unlink((dir + "/filler").c_str());
    ::unlink((dir + "/filler2").c_str());
    INSIDE_CHECK(journal.flush(seconds(20)));
    INSIDE_CHECK(eventually([&] { return ok == 1; }));
    INSIDE_CHECK(file_exists(data + "/ballast"));
    INSIDE_CHECK(low == 1 && fatal == 0);
  }
  auto store = open_store(data, {}, ballast_bytes);
  const auto records = read_all(store->journal());
  INSIDE_CHECK(records.size() == 3061);
  for (std::size_t i = 0; i < records.size(); ++i)
    INSIDE_CHECK(records[i].seq == i + 1 && records[i].payload.size() == 1000);
  INSIDE_CHECK(store->queries().get_job(JobId(3061))->has_value());
}

TEST(FullDisk, LosesNothingAndRecovers) {
  ON_SMALL_DISK(fill_and_recover);
}

void open_when_full(const std::string& dir) {
  const std::string data = dir + "/data";
  { open_store(data, {}, ballast_bytes)->journal().append(batch_of(10)); }
  fill(dir + "/filler", 0);
  std::atomic<int> low{0};
  JournalHooks hooks;
  hooks.on_health = [&](StoreHealth health, const Error&) {
    if (health == StoreHealth::disk_low)
      ++low;
  };
  // The last run's ballast makes room for the epoch; there is none for a new one.
  auto store = open_store(data, hooks, ballast_bytes);
  INSIDE_CHECK(store->journal().durable_seq() == 10 && store->journal().epoch() == 2);
  store->journal().append(batch_of(10));
  INSIDE_CHECK(store->journal().flush(seconds(20)));
  INSIDE_CHECK(store->journal().durable_seq() == 20);
  INSIDE_CHECK(low <= 1);
}

TEST(FullDisk, AHeadCanStartOnIt) {
  ON_SMALL_DISK(open_when_full);
}

void crash_when_full(const std::string& dir) {
  const std::string data = dir + "/data";
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = open_store(data, {}, ballast_bytes);
    fill(dir + "/filler", 0);
    for (int i = 0; i < 5000; ++i)
      store->journal().append(batch_of(1, std::string(1000, 'y')));
    INSIDE_CHECK(store->journal().flush(milliseconds(500)).error().code == Code::storage_full);
    INSIDE_CHECK(store->journal().durable_seq() < 5000);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  INSIDE_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  ::unlink((dir + "/filler").c_str());
  auto store = open_store(data, {}, ballast_bytes);
  const auto records = read_all(store->journal());
  for (std::size_t i = 0; i < records.size(); ++i)
    INSIDE_CHECK(records[i].seq == i + 1);
  INSIDE_CHECK(store->journal().health() == StoreHealth::ok);
  store->journal().append(batch_of(1));
  INSIDE_CHECK(store->journal().flush(seconds(20)));
}

TEST(FullDisk, AKillMeanwhileLeavesAWholeJournal) {
  ON_SMALL_DISK(crash_when_full);
}

}  // namespace
}  // namespace billow
