// The child between fork and exec. The parent may have threads, so everything here is a system
// call: no allocation, no locks. What can fail is reported through a pipe that exec closes.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "process/become_linux.h"
#include "process/call_filter_linux.h"
#include "process/each_entry_linux.h"
#include "process/fork.h"

namespace billow::process {
namespace {

constexpr int failed_code = 126;
constexpr int old_kernel_fds_max = 65536;  // before Linux 5.9 descriptors are closed one by one

struct Failure {
  int error;
  char step[96];
  int cgroup = -1;  // index of the one that could not be entered
};

struct Parts {
  const Prepared& prepared;
  std::vector<Fd> cgroups, namespaces;
  std::vector<gid_t> groups;
  int failure = -1;  // where a Failure is written
};

// ---- in the parent

// Above every descriptor that the child is given, so that dup2 does not overwrite it.
Result<Fd> lift(const Fd& fd, const Prepared& prepared) {
  Fd high(::fcntl(fd.get(), F_DUPFD_CLOEXEC, prepared.first_free_fd));
  if (!high)
    return fail_errno("duplicate a descriptor", errno);
  return high;
}

// Namespaces equal to ours are left out: entering them would need rights without any effect.
Result<std::vector<Fd>> open_namespaces(const Prepared& prepared) {
  const NamespacesOf& of = prepared.request.namespaces;
  std::vector<Fd> out;
  if (of.pid <= 0)
    return out;
  // Root enters the others from its own user namespace. Others must first enter the one they made.
  const bool root = ::geteuid() == 0;
  const struct {
    const char* name;
    bool wanted;
  } kinds[] = {{"user", !root}, {"net", of.network}, {"mnt", of.mount}};
  for (const auto& kind : kinds) {
    if (!kind.wanted)
      continue;
    struct stat its {
    }, ours{};
    const std::string path = fmt::format("/proc/{}/ns/{}", of.pid, kind.name);
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd || ::fstat(fd.get(), &its) != 0 ||
        ::stat(fmt::format("/proc/self/ns/{}", kind.name).c_str(), &ours) != 0)
      return fail(Code::conflict,
                  fmt::format("the namespaces of process {} cannot be entered: {}: {}", of.pid,
                              path, strerrordesc_np(errno)));
    if (its.st_ino != ours.st_ino || its.st_dev != ours.st_dev)
      out.push_back(BILLOW_TRY(lift(fd, prepared)));
  }
  return out;
}

Result<std::vector<Fd>> open_cgroups(const Prepared& prepared) {
  std::vector<Fd> out;
  for (const std::string& directory : prepared.request.cgroups) {
    // Version 1's list of threads, of which the child has one: entering by the list of processes
    // stops all forks of the machine, for up to tens of milliseconds.
    Fd fd(::open((directory + "/tasks").c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd)
      fd = Fd(::open((directory + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd)
      return fail_errno("enter the control group " + directory, errno);
    out.push_back(BILLOW_TRY(lift(fd, prepared)));
  }
  return out;
}

// ---- in the child

[[noreturn]] void give_up(const Parts& parts, const char* step, int cgroup = -1) {
  Failure failure{errno, {}, cgroup};
  for (std::size_t i = 0; step[i] != 0 && i + 1 < sizeof failure.step; ++i)
    failure.step[i] = step[i];
  (void)!::write(parts.failure, &failure, sizeof failure);
  ::_exit(failed_code);
}

void place(const Parts& parts) {
  const Spawn& request = parts.prepared.request;
  const bool leads = request.group == Group::session || request.terminal >= 0;
  if (leads && ::setsid() < 0)
    give_up(parts, "start a session");
  if (!leads && request.group == Group::own && ::setpgid(0, 0) != 0)
    give_up(parts, "start a process group");
  if (request.terminal >= 0 && ::ioctl(request.terminal, TIOCSCTTY, 0) != 0)
    give_up(parts, "take the terminal");
  for (const GivenFd& given : parts.prepared.fds)
    if (::dup2(given.fd, given.as) < 0)
      give_up(parts, "connect a descriptor");
}

void confine(const Parts& parts) {
  int index = 0;
  for (const Fd& group : parts.cgroups) {
    if (::write(group.get(), "0", 1) != 1)
      give_up(parts, "enter the control group", index);
    ++index;
  }
  for (const Fd& one : parts.namespaces)
    if (::setns(one.get(), 0) != 0)
      give_up(parts, "enter the namespaces of the process");
}

void limit_open_files(std::uint64_t limit) {
  rlimit files{};
  if (limit == 0 || ::getrlimit(RLIMIT_NOFILE, &files) != 0)
    return;
  files.rlim_cur = limit < files.rlim_max ? limit : files.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

void become(const Parts& parts) {
  const Spawn& request = parts.prepared.request;
  const bool low_ports = request.low_ports && request.identity && ::geteuid() == 0;
  if (low_ports)
    ::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
  if (request.identity)
    if (const char* step = become_user({.uid = request.identity->uid,
                                        .gid = request.identity->gid,
                                        .groups = parts.groups.data(),
                                        .groups_count = parts.groups.size()}))
      give_up(parts, step);
  if (low_ports)
    if (const char* step = keep_low_ports())
      give_up(parts, step);
  if (request.identity || request.no_new_privs || request.refused_calls != 0)
    if (const char* step = forbid_new_privileges())
      give_up(parts, step);
  // After the change of user, which clears it.
  if (request.on_parent_death != 0)
    ::prctl(PR_SET_PDEATHSIG, request.on_parent_death);
  if (!request.cwd.empty() && ::chdir(request.cwd.c_str()) != 0 &&
      !(request.cwd_or_root && ::chdir("/") == 0))
    give_up(parts, "enter the directory");
  if (request.refused_calls != 0)
    if (const char* step = refuse_calls(request.refused_calls))
      give_up(parts, step);
}

[[noreturn]] void run_child(const Parts& parts) {
  const Prepared& prepared = parts.prepared;
  place(parts);
  confine(parts);
  limit_open_files(prepared.request.open_files);
  become(parts);
  reset_signals(prepared.request.signals == Signals::keep_ignored);
  if (prepared.request.body) {
    ::close(parts.failure);
    ::_exit(prepared.request.body());
  }
  close_on_exec_from(prepared.first_free_fd);
  for (int fd = 3; fd < prepared.first_free_fd; ++fd)
    if (!prepared.gives(fd))
      ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::execvpe(prepared.program(), prepared.argv.data(), prepared.env.data());
  give_up(parts, "");
}

// ---- the process that watches over a whole tree

pid_t parent_of(const char* pid) {
  char path[64] = "/proc/";
  if (std::strlen(pid) > 20)
    return 0;
  std::strcat(path, pid);
  std::strcat(path, "/stat");
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  char text[512];
  const ssize_t n = fd < 0 ? -1 : ::read(fd, text, sizeof text - 1);
  if (fd >= 0)
    ::close(fd);
  text[n > 0 ? n : 0] = 0;
  // "PID (NAME) S PPID": the name may hold any character.
  const char* after = std::strrchr(text, ')');
  return after && std::strlen(after) > 4 ? static_cast<pid_t>(std::strtol(after + 4, nullptr, 10))
                                         : 0;
}

// Only direct children: what they leave behind becomes ours when they end.
void kill_children() {
  const pid_t self = ::getpid();
  (void)each_entry("/proc", [self](const char* name) {
    if (name[0] >= '1' && name[0] <= '9' && parent_of(name) == self)
      ::kill(static_cast<pid_t>(std::strtol(name, nullptr, 10)), SIGKILL);
    return 0;
  });
}

[[noreturn]] void end_like(int status) {
  if (WIFEXITED(status))
    ::_exit(WEXITSTATUS(status));
  ::prctl(PR_SET_DUMPABLE, 0);  // one core file is enough
  reset_signals();
  ::kill(::getpid(), WTERMSIG(status));
  ::_exit(128 + WTERMSIG(status));
}

// Every signal is blocked here. Orphans of the tree become children of this process, so nothing can
// leave it. SIGTERM, from Child::end() or because the parent ended, kills the tree.
[[noreturn]] void watch_over(pid_t child) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // What our parent closes must not stay open here.
  if (::syscall(SYS_close_range, 0u, ~0u, 0u) != 0)
    for (int fd = 0; fd < old_kernel_fds_max; ++fd)
      ::close(fd);
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  sigaddset(&awaited, SIGTERM);
  bool over = false;
  int result = SIGKILL;
  for (;;) {
    int status = 0;
    pid_t got = 0;
    while ((got = ::waitpid(-1, &status, WNOHANG)) > 0)
      if (got == child) {
        result = status;
        over = true;
      }
    if (got < 0 && errno == ECHILD)
      end_like(result);
    if (over)
      kill_children();
    const timespec pause{over ? 0 : 1, over ? 10'000'000 : 0};
    if (::sigtimedwait(&awaited, nullptr, &pause) == SIGTERM)
      over = true;
  }
}

[[noreturn]] void run_watched(const Parts& parts) {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    give_up(parts, "watch over the processes");
  const pid_t child = ::fork();
  if (child < 0)
    give_up(parts, "fork");
  if (child == 0)
    run_child(parts);
  watch_over(child);
}

[[noreturn]] void run_detached(const Parts& parts) {
  ::setsid();
  const pid_t child = ::fork();
  if (child < 0)
    give_up(parts, "fork");
  if (child == 0)
    run_child(parts);
  ::_exit(0);
}

Error described(const Failure& failure, const Spawn& request) {
  std::string what(failure.step, ::strnlen(failure.step, sizeof failure.step));
  if (what.empty())
    what = request.program.empty() ? request.argv.front() : request.program;
  else if (failure.cgroup >= 0)
    what += " " + request.cgroups[static_cast<std::size_t>(failure.cgroup)];
  else if (what == "enter the directory")
    what += " " + request.cwd;
  else if (what == "enter the namespaces of the process")
    what += fmt::format(" {}", request.namespaces.pid);
  return fail_errno(what, failure.error).error();
}

// With every signal blocked, so that no handler of ours runs in the child.
pid_t fork_blocked() {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid != 0)
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pid;
}

// Whether the child has started, or has said why not, before the deadline, if there is one. The
// directory that it enters may lie in a file system that does not answer.
bool has_reported(int report, SteadyTime deadline) {
  for (;;) {
    const Duration left = deadline - system_clock().steady();
    if (deadline.ns != 0 && left.ns <= 0)
      return false;
    pollfd fd{report, POLLIN, 0};
    const int wait_ms =
        deadline.ns == 0 ? -1 : static_cast<int>(std::min<std::int64_t>(left.ms() + 1, 60'000));
    if (::poll(&fd, 1, wait_ms) > 0)
      return true;
  }
}

}  // namespace

Result<int> fork_child(const Prepared& prepared) {
  const Spawn& request = prepared.request;
  Pipe failures = BILLOW_TRY(Pipe::create());
  Fd report = BILLOW_TRY(lift(failures.write, prepared));
  failures.write.reset();
  Parts parts{.prepared = prepared,
              .cgroups = BILLOW_TRY(open_cgroups(prepared)),
              .namespaces = BILLOW_TRY(open_namespaces(prepared)),
              .groups = {},
              .failure = report.get()};
  if (request.identity)
    parts.groups.assign(request.identity->groups.begin(), request.identity->groups.end());
  const pid_t pid = fork_blocked();
  if (pid < 0)
    return fail_errno("fork", errno);
  if (pid == 0) {
    if (request.whole_tree)
      run_watched(parts);
    if (request.detached)
      run_detached(parts);
    run_child(parts);
  }
  report.reset();
  if (request.detached)
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {}
  if (!request.detached && !has_reported(failures.read.get(), request.deadline))
    return pid;  // it is killed when it is waited for
  Failure failure{};
  ssize_t n = 0;
  while ((n = ::read(failures.read.get(), &failure, sizeof failure)) < 0 && errno == EINTR) {}
  if (n == sizeof failure) {
    if (!request.detached)
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {}
    return pass(described(failure, request));
  }
  return request.detached ? 0 : pid;
}

void close_on_exec_from(int first) {
  ::syscall(SYS_close_range, static_cast<unsigned>(first), ~0u, CLOSE_RANGE_CLOEXEC);
}

void close_in_child(const Prepared& prepared, posix_spawn_file_actions_t& actions, short&) {
  for (int fd = 3; fd < prepared.first_free_fd; ++fd)
    if (!prepared.gives(fd))
      ::posix_spawn_file_actions_addclose(&actions, fd);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, prepared.first_free_fd);
}

}  // namespace billow::process
