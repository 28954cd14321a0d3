// A signal that comes while the job is being started reaches it.
#include "supervise/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace billow::supervise {
namespace {

// The job's process stops in front of a cgroup that is a pipe, until somebody reads it.
TEST(Child, ASignalBeforeExecIsNotLost) {
  char place[] = "/tmp/billow-child-XXXXXX";
  ASSERT_NE(::mkdtemp(place), nullptr);
  const std::string gate = std::string(place) + "/cgroup.procs";
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  const char* argv[] = {"/bin/sleep", "600", nullptr};
  const char* none[] = {nullptr};
  auto spec = std::make_unique<Spec>();
  spec->argv = argv;
  spec->argv_count = 2;
  spec->env = spec->hide_devices = spec->binds = none;
  spec->cwd = "/";
  spec->cgroups_v1[0] = place;
  spec->cgroups_v1_count = 1;
  // As the supervisor, which the signals of a terminal do not end.
  const auto before = ::signal(SIGINT, SIG_IGN);
  Child child;
  const char* step = "";
  ASSERT_EQ(start_child(*spec, &child, &step), 0) << step;
  ::signal(SIGINT, before);
  while (::kill(-child.pid, 0) != 0)  // it has its own process group: it is on its way
    ::usleep(1000);
  EXPECT_EQ(::kill(-child.pid, SIGINT), 0);
  const int read = ::open(gate.c_str(), O_RDONLY);
  ASSERT_GE(read, 0);
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 2000 && ended == 0; ++i) {
    ended = ::waitpid(child.pid, &status, WNOHANG);
    ::usleep(5000);
  }
  if (ended == 0) {
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, &status, 0);
  }
  EXPECT_EQ(ended, child.pid) << "the signal was lost";
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  ::close(read);
  ::unlink(gate.c_str());
  ::rmdir(place);
}

// The list of processes of a group of version 1 would stop every fork of the machine.
TEST(Child, AGroupOfVersion1IsEnteredByItsListOfThreads) {
  char place[] = "/tmp/billow-child-XXXXXX";
  ASSERT_NE(::mkdtemp(place), nullptr);
  const std::string threads = std::string(place) + "/tasks",
                    processes = std::string(place) + "/cgroup.procs";
  for (const std::string& list : {threads, processes})
    ::close(::open(list.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const char* argv[] = {"/bin/true", nullptr};
  const char* none[] = {nullptr};
  auto spec = std::make_unique<Spec>();
  spec->argv = argv;
  spec->argv_count = 1;
  spec->env = spec->hide_devices = spec->binds = none;
  spec->cwd = "/";
  spec->cgroups_v1[0] = place;
  spec->cgroups_v1_count = 1;
  Child child;
  const char* step = "";
  ASSERT_EQ(start_child(*spec, &child, &step), 0) << step;
  int status = 0;
  ASSERT_EQ(::waitpid(child.pid, &status, 0), child.pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  struct stat info {};
  EXPECT_TRUE(::stat(threads.c_str(), &info) == 0 && info.st_size == 1) << info.st_size;
  EXPECT_TRUE(::stat(processes.c_str(), &info) == 0 && info.st_size == 0) << info.st_size;
  ::unlink(threads.c_str());
  ::unlink(processes.c_str());
  ::rmdir(place);
}

}  // namespace
}  // namespace billow::supervise
